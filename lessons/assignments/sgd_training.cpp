#include "lessons/assignments/sgd_training.hpp"

namespace lockstep::lessons {

Trained SgdTraining::alone() const {
    return train_alone(layers, network, shards, steps, learning_rate);
}

NetworkTensors SgdTraining::by(
    int count,
    const std::function<NetworkTensors(const NetworkTensors&)>& gradient) const {
    NetworkTensors now = network;
    for (int step = 0; step < count; ++step) {
        const NetworkTensors by = gradient(now);
        for (auto& [name, values] : now)
            values = weighted_sum({values, by.at(name)}, {1, -learning_rate});
    }
    return now;
}

namespace {

/// Knows what mistakes make of one parameter.
class Trainings {
  public:
    Trainings(const SgdTraining& training, std::string parameter)
        : of_(training), parameter_(std::move(parameter)) {
        for (const ClassifiedRows& shard : of_.shards)
            rows_ += static_cast<double>(shard.targets.elements());
    }

    /// Each rank steps by its own rows: by their mean, or by its terms of the mean.
    Suspect apart(std::string said, bool weighted) const {
        Suspect suspect{std::move(said), {}};
        for (const ClassifiedRows& shard : of_.shards) {
            const auto own = static_cast<double>(shard.targets.elements());
            suspect.left.push_back(steps(of_.steps, {shard}, weighted ? own / rows_ : 1));
        }
        return suspect;
    }
    /// All take so many steps, by `factor` times the right gradient.
    Suspect together(std::string said, int count, double factor) const {
        return on_all(std::move(said), steps(count, of_.shards, factor));
    }
    /// Gradients are not set to zero between steps.
    Suspect added() const {
        NetworkTensors sums;
        const NetworkTensors left = of_.by(of_.steps, [&](const NetworkTensors& network) {
            for (const auto& [name, values] : gradients(network, of_.shards)) {
                HostTensor& sum =
                    sums.try_emplace(name, HostTensor(values.shape(), DType::f64))
                        .first->second;
                sum = weighted_sum({sum, values}, {1, 1});
            }
            return sums;
        });
        return on_all("the gradients of the steps before are in each step's",
                      left.at(parameter_));
    }
    /// The first step's gradients serve all steps.
    Suspect kept() const {
        NetworkTensors first = gradients(of_.network, of_.shards);
        return on_all("all steps are by the gradient of the first one",
                      of_.by(of_.steps, [&](const NetworkTensors&) { return first; })
                          .at(parameter_));
    }
    double rows() const { return rows_; }

  private:
    NetworkTensors gradients(const NetworkTensors& network,
                             const std::vector<ClassifiedRows>& shards) const {
        return mean_loss(of_.layers, network, shards).gradients;
    }
    HostTensor steps(int count, const std::vector<ClassifiedRows>& shards,
                     double factor) const {
        return of_
            .by(count,
                [&](const NetworkTensors& network) {
                    NetworkTensors by = gradients(network, shards);
                    for (auto& [name, values] : by)
                        values = weighted_sum({values}, {factor});
                    return by;
                })
            .at(parameter_);
    }
    Suspect on_all(std::string said, const HostTensor& values) const {
        return {std::move(said), OfRanks(of_.shards.size(), values)};
    }

    const SgdTraining& of_;
    std::string parameter_;
    double rows_ = 0;
};

}  // namespace

std::string suspected_training(const SgdTraining& training, const std::string& parameter,
                               const OfRanks& left) {
    const Trainings made(training, parameter);
    const auto n = static_cast<double>(training.shards.size());
    const int steps = training.steps;
    return suspected(
        left,
        {made.apart("each rank steps by its own terms of the gradient: an all-reduce is "
                    "missing",
                    true),
         made.apart("each rank steps by the mean over its own rows: the ranks' gradients "
                    "are not put together",
                    false),
         made.added(), made.kept(), made.together("that is no step at all", 0, 1),
         made.together("that is one step too few", steps - 1, 1),
         made.together("that is one step too many", steps + 1, 1),
         made.together("each step is divided by the number of ranks once more", steps,
                       1 / n),
         made.together("each step is the number of ranks times as long as it should be",
                       steps, n),
         made.together("each step is by the sum over the rows; their mean is asked",
                       steps, made.rows()),
         made.together("the steps go up the gradient", steps, -1)});
}

}  // namespace lockstep::lessons
