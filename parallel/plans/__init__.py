"""Plans: how layers with weights are placed along an axis of the grid, an object each, and placing a network with them.

| word         | weight W (.., inputs, outputs) | input of the layer       | output           | file            |
|--------------|--------------------------------|--------------------------|------------------|-----------------|
| "out"        | `Shard(outputs)`               | `Replicate`              | `Shard(C)`       | `outputs.py`    |
| "in"         | `Shard(inputs)`                | `Shard(C)`               | `Partial`        | `inputs.py`     |
| "replicate"  | `Replicate`                    | `Shard(N)`               | `Shard(N)`       | `replicate.py`  |
| "redundant"  | `Invariant`                    | `Invariant`              | `Invariant`      | `redundant.py`  |
| "height"     | `Replicate`                    | `Shard(H)`               | `Shard(H)`       | `pixels.py`     |
| "width"      | `Replicate`                    | `Shard(W)`               | `Shard(W)`       | `pixels.py`     |
| "laugier"    | `Shard(outputs)`               | `Replicate`              | `Invariant`      | `laugier.py`    |
| "marques"    | `AtMaster`                     | `AtMaster(N)`            | `AtMaster(N)`    | `marques.py`    |
| "hidden"     | `Shard(hidden units)`          | `Replicate`              | `Partial`        | `hidden.py`     |
| "hypergraph" | `Tile`                         | `Copies(C)`: what is needed | `Shard(C)`: what is owned | `hypergraph.py` |
"""
