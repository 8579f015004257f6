"""The papers whose experiments are repeated: {name: (the module of its experiments, that of its items on the page)}."""

from gridgrad.experiments.papers import (
    eserol2019,
    eserol2019_items,
    grabaskas2018,
    grabaskas2018_items,
    hegde2016,
    hegde2016_items,
    laugier2018,
    laugier2018_items,
    marques2016,
    marques2016_items,
)

PAPERS = {
    "laugier2018": (laugier2018, laugier2018_items),
    "grabaskas2018": (grabaskas2018, grabaskas2018_items),
    "hegde2016": (hegde2016, hegde2016_items),
    "marques2016": (marques2016, marques2016_items),
    "eserol2019": (eserol2019, eserol2019_items),
}
