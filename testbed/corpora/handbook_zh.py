"""A small operations handbook in Chinese, generated: pages on the settings of services, and questions about them.

Chinese is written without spaces, so what a word is depends on who cuts it. The names of services and settings are
compounds of words that also stand elsewhere; a list of terms at the end of the handbook quotes each of them 「so」.
"""
# ruff: noqa: RUF001  (Chinese has punctuation of its own)

from __future__ import annotations

from testbed.core import seeds
from testbed.core.types import Doc, Query
from testbed.corpora.answers import AnswerCorpus, answer_corpus

SEED = 7
N_ASKED = 6  # settings of a service that have a page and are asked about

ENTITIES = (
    "支付网关", "消息网关", "接口网关", "订单中心", "库存中心", "报表中心", "风控引擎", "推荐引擎", "规则引擎",
    "客服机器人", "巡检机器人", "数据总线", "数据看板", "登录服务", "打印服务", "路线规划器", "任务调度器",
    "图像识别器", "发票归档库", "日志归档库",
)  # fmt: skip
SETTINGS = {
    "请求超时时间": ("200毫秒", "350毫秒", "500毫秒", "800毫秒", "1200毫秒"),
    "最大并发数": ("16", "32", "64", "128", "256"),
    "备份周期": ("每两小时", "每六小时", "每天", "每三天", "每周"),
    "日志保留期": ("7天", "14天", "30天", "90天", "180天"),
    "值班小组": ("北斗组", "天枢组", "玉衡组", "开阳组", "摇光组"),
    "部署区域": ("华东一区", "华北二区", "华南三区", "西南一区", "华中二区"),
    "恢复等级": ("金级", "银级", "铜级", "铁级", "木级"),
    "告警阈值": ("百分之六十", "百分之七十", "百分之八十", "百分之九十", "百分之九十五"),
    "重试次数": ("两次", "三次", "四次", "五次", "六次"),
    "月度费用": ("1200元", "1800元", "2600元", "3400元", "4800元"),
}
_PAGES = (
    "{e}的{a}为{v}。",
    "目前{e}把{a}设为{v}。",
    "{a}方面，{e}按{v}执行。",
    "根据最新登记，{e}使用的{a}是{v}。",
)
_REMARKS = (
    "改动需要两位负责人签字。",
    "修改前请先提交工单。",
    "数值由各部门共同商定。",
    "例外情况由运维主管批准。",
    "变更后需要重新启动才能生效。",
    "本页每季度检查一次。",
    "相关图表见监控大屏。",
    "旧版说明存放在档案室。",
)
_QUESTIONS = ("{e}的{a}是多少？", "请问{e}现在的{a}怎么定的？", "想查一下{a}，{e}按什么执行？")


def build_handbook_zh() -> AnswerCorpus:
    """The handbook: the same bytes on every machine."""
    docs: list[Doc] = []
    queries: list[Query] = []
    relevant: dict[str, dict[str, int]] = {}
    subjects: dict[str, str] = {}
    for n, entity in enumerate(ENTITIES):
        rng = seeds.stream(SEED, "handbook-zh", entity)
        for setting in sorted(rng.sample(sorted(SETTINGS), N_ASKED)):
            slug = f"s{n:02d}-{sorted(SETTINGS).index(setting):02d}"
            fact = rng.choice(_PAGES).format(e=entity, a=setting, v=rng.choice(SETTINGS[setting]))
            docs.append(Doc(slug, "".join([fact, *rng.sample(_REMARKS, 2)]), kind="record"))
            for number, template in enumerate(_QUESTIONS):
                query = Query(f"{slug}-q{number}", template.format(e=entity, a=setting))
                queries.append(query)
                relevant[query.id], subjects[query.id] = {slug: 1}, slug
    for n, word in enumerate(("服务", "设置")):
        terms = ENTITIES if word == "服务" else sorted(SETTINGS)
        docs.append(Doc(f"terms-{n}", f"术语表，{word}：" + "、".join(f"「{t}」" for t in terms) + "。", kind="note"))
    return answer_corpus("handbook-zh", docs, queries, relevant, {}, subjects=subjects)
