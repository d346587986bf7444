#include "lessons/runner/whole_parameters.hpp"

#include <stdexcept>

#include "lessons/runner/lesson.hpp"
#include "src/nn/part.hpp"

namespace lockstep::lessons {

WholeParameters::WholeParameters(int ranks, const Make& make)
    : parts_(static_cast<std::size_t>(ranks)) {
    make_shapes_only_cluster(ranks)->run([&](Rank& rank) {
        make(rank, [&](Module& model) {
            for (const Parameter* parameter : model.parameters())
                parts_[rank.index()].emplace(parameter->name(), parameter->part());
        });
    });
}

std::map<std::string, HostTensor> WholeParameters::put_together(
    const RunReport& report, const std::string& prefix) const {
    std::map<std::string, HostTensor> whole;
    for (std::size_t rank = 0; rank < parts_.size(); ++rank) {
        for (const auto& [name, part] : parts_[rank]) {
            const HostTensor& kept = report.ranks[rank].kept.at(prefix + name);
            const auto [place, is_first] =
                whole.try_emplace(name, part.whole, kept.dtype());
            if (holds_all(part) && !is_first && !(place->second == kept))
                throw std::logic_error("replicas of " + name + " differ");
            put_shard(place->second, kept, part);
        }
    }
    return whole;
}

}  // namespace lockstep::lessons
