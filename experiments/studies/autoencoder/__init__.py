"""The program `autoencoder`: the stacked autoencoder of Marques 2016, Appendix A."""
