"""The tables of processors on which the project was measured, and how each processor is recognised.

All were measured with OpenBLAS 0.3.31 and its kernels for SkylakeX, which it uses on all these processors, with one thread.
`nn/kernels/gemm.py` says what tiles are.

- Zen 4 and Zen 5: tiles are 1.05 to 1.4 times as fast as the plain call for batches of some hundred samples.
- Skylake-X: tiles of 16 x 64 reach a third of the plain call in wide products (128 x 784 x 512: 27 to 36 GFLOP/s instead of 84
  to 100), and are faster only where k is small (4096 x 75 x 64: 88 to 119 instead of 45 to 88). Products with a transposed
  operand were not measured there: their limits are lower than those of Sapphire Rapids.
- Sapphire Rapids: tiles are 1.1 to 1.5 times as fast with few columns or small k, and slower in wide products with k of some
  hundreds. They need rows that begin at cache lines, as those of the memory that layers allocate mostly do.
  `results/kernels.json` has the measurements.
"""

from typing import Any

from gridgrad.nn.kernels.kernel_table import NO_LIMIT, Kernels, Tiles

BLAS = "openblas", "SkylakeX"  # the name and the kernels of the library with which all of them were measured

ZEN: dict[str, Any] = {
    "tiles": Tiles(
        few_columns=(NO_LIMIT,) * 3,
        shapes=(*((rows, 64) for rows in (16, 32, 20, 24)), *((rows, 32) for rows in (50, 48, 32))),
        most_k=NO_LIMIT,
        most_k_few_rows=NO_LIMIT,
    ),
    "tiles_left_transposed": Tiles(
        few_columns=(NO_LIMIT,) * 3,
        shapes=tuple((rows, 32) for rows in (64, 32, 16)),
        most_k=256,
        most_k_few_rows=256,
    ),
    "tiles_right_transposed": Tiles(
        few_columns=(NO_LIMIT,) * 3,
        shapes=tuple((rows, 16) for rows in (64, 50, 48, 40, 32, 25, 20, 16)),
        most_k=800,
        most_k_few_rows=NO_LIMIT,
    ),
    "group_rows": 48,
    "row_winograd": 5,
    "winograd_3x3": 24,
    "winograd_5x5": 24,
}

SHIPPED = {
    "Zen 4": Kernels("Zen 4 (shipped)", **ZEN),
    "Zen 5": Kernels("Zen 5 (shipped)", **ZEN),
    "Skylake-X": Kernels(
        "Skylake-X (shipped)",
        tiles=Tiles(few_columns=(300, 300, 300)),
        tiles_left_transposed=Tiles(few_columns=(100, 150, 100)),
        group_rows=48,
        row_winograd=5,
        winograd_3x3=24,
        winograd_5x5=24,
    ),
    "Sapphire Rapids": Kernels(
        "Sapphire Rapids (shipped)",
        tiles=Tiles(
            few_columns=(1200, 1200, 900),
            shapes=(*((rows, 64) for rows in (64, 32, 50, 16, 20, 24)), *((rows, 32) for rows in (64, 32, 50, 48))),
            most_k=256,
            most_k_few_rows=100,
        ),
        tiles_left_transposed=Tiles(
            few_columns=(100, 600, 450),
            shapes=(*((rows, 64) for rows in (64, 32)), *((rows, 32) for rows in (64, 32))),
            most_k=80,
            most_k_few_rows=150,
        ),
        tiles_right_transposed=Tiles(shapes=tuple((16, columns) for columns in (64, 32, 16)), most_k_few_rows=600),
        group_rows=40,
        small_batch=16,
        row_winograd=5,
        winograd_bytes=3 << 19,
        winograd_3x3=24,
        winograd_5x5=24,
    ),
}


def generation(processor):
    """The key in SHIPPED for a Processor; None if it is of another generation.

    It goes by what the instruction set tells, because a virtual machine may give its processor any name and model number.
    """
    flags = processor.flags
    if processor.vendor == "AuthenticAMD" and "avx512f" in flags:
        return {25: "Zen 4", 26: "Zen 5"}.get(processor.family)
    if processor.vendor == "GenuineIntel" and "avx512f" in flags:
        if "amx_tile" in flags:
            return None if "amx_fp16" in flags else "Sapphire Rapids"  # amx_fp16 came with Granite Rapids
        return None if "avx512ifma" in flags else "Skylake-X"  # avx512ifma came with Ice Lake
    return None


def shipped(processor, blas):
    """The table for a Processor and a Blas, which holds for one thread; None if there is none."""
    return SHIPPED.get(generation(processor)) if (blas.name, blas.kernels) == BLAS else None
