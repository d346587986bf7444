#include "src/trial/training.hpp"

namespace lockstep {

void train(Rank& rank, const Trained& trained, int steps, const Step& step,
           const Advance& advance) {
    keep_parameters(rank, trained.values, "initial/", &Parameter::value);
    for (int i = 0; i < steps; ++i) {
        const Tensor loss = step(i);
        if (loss) rank.keep_value("loss", rank.device().peek(loss).at(0));
        if (i == 0)
            keep_parameters(rank, trained.gradients, "grad/", &Parameter::gradient);
        if (advance && rank.index() == 0) advance(i + 1);
    }
    keep_parameters(rank, trained.values, "", &Parameter::value);
}

void keep_parameters(Rank& rank, const std::vector<Parameter*>& parameters,
                     const std::string& prefix, Tensor Parameter::*tensor) {
    if (!rank.device().has_numbers()) return;
    for (const Parameter* parameter : parameters)
        if (parameter->*tensor)
            rank.keep(prefix + parameter->name(), parameter->*tensor, parameter->part());
}

void load_parameters(const std::vector<Parameter*>& parameters,
                     const NamedTensors& wholes) {
    for (const Parameter* parameter : parameters) {
        const auto whole = wholes.find(parameter->name());
        if (whole == wholes.end()) continue;
        parameter->value.device()->upload_into(
            parameter->value, shard_of(whole->second, parameter->part()));
    }
}

}  // namespace lockstep
