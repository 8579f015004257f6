"""The study `protocols`: update protocols, with and without a straggler."""
