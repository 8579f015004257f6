"""The package of gridgrad for Spack 1.0 and later, in a repository of its own:

spack repo add docs/tools/spack_repo/gridgrad
spack dev-build py-gridgrad@1.0.0

It is built from the sources in this folder, so there is no address to fetch it from.
"""

from spack.package import depends_on, license, version
from spack_repo.builtin.build_systems.python import PythonPackage


class PyGridgrad(PythonPackage):
    """Neural networks from scratch in NumPy and MPI, trained on process grids: batch, model, domain and 2-D parallelism."""

    license("BSD-3-Clause")

    version("1.0.0")

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("mpi", type=("build", "link", "run"))
    depends_on("py-numpy@2.0:", type=("build", "run"))
    depends_on("py-greenlet@3.0:", type=("build", "run"))
    depends_on("py-mpi4py@4.1:", type=("build", "run"))
    depends_on("py-h5py@3.11:", type=("build", "run"))
    depends_on("py-jinja2@3.1:", type=("build", "run"))
    depends_on("py-matplotlib@3.9:", type=("build", "run"))
    depends_on("py-pandas@2.2:", type=("build", "run"))
    depends_on("py-pillow@10:", type=("build", "run"))
    depends_on("py-platformdirs@4.0:", type=("build", "run"))
    depends_on("py-pooch@1.8:", type=("build", "run"))
    depends_on("py-psutil@6.0:", type=("build", "run"))
    depends_on("py-scipy@1.11:", type=("build", "run"))
    depends_on("py-shtab@1.7:", type=("build", "run"))
    depends_on("py-threadpoolctl@3.5:", type=("build", "run"))
    depends_on("py-tomli-w@1.0:", type=("build", "run"))
    depends_on("py-tqdm@4.66:", type=("build", "run"))

    import_modules = ["gridgrad", "gridgrad.nn", "gridgrad.parallel", "gridgrad.experiments"]
