"""The papers whose experiments are repeated: {name: (the module of its experiments, that of its items on the page)}."""

from gridgrad.experiments.papers.eserol2019 import experiments as eserol2019
from gridgrad.experiments.papers.eserol2019 import items as eserol2019_items
from gridgrad.experiments.papers.grabaskas2018 import experiments as grabaskas2018
from gridgrad.experiments.papers.grabaskas2018 import items as grabaskas2018_items
from gridgrad.experiments.papers.hegde2016 import experiments as hegde2016
from gridgrad.experiments.papers.hegde2016 import items as hegde2016_items
from gridgrad.experiments.papers.laugier2018 import experiments as laugier2018
from gridgrad.experiments.papers.laugier2018 import items as laugier2018_items
from gridgrad.experiments.papers.marques2016 import experiments as marques2016
from gridgrad.experiments.papers.marques2016 import items as marques2016_items

PAPERS = {
    "laugier2018": (laugier2018, laugier2018_items),
    "grabaskas2018": (grabaskas2018, grabaskas2018_items),
    "hegde2016": (hegde2016, hegde2016_items),
    "marques2016": (marques2016, marques2016_items),
    "eserol2019": (eserol2019, eserol2019_items),
}
