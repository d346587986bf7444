#include "adapters.hpp"

#include "mesh.hpp"

using namespace lockstep;

Trained adapters::train(Rank& rank, const Job& job, const Axes& axes) {
    return ::train(rank, job, axes);
}

Axes adapters::choose(const Setting& setting) {
    return ::choose(setting);
}
