"""What a drop is made of: how big, how sure, which layer, and whether the scenario still shows what it promises."""
