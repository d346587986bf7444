#pragma once

#include <fmt/format.h>

#include "lessons/assignments/debug_the_cluster/grading/trials.hpp"
#include "lessons/assignments/debug_the_cluster/handout/one_device.hpp"

namespace lockstep::lessons {

/// Fills one trial in.
class Draft {
  public:
    Draft(const Judge& judge, const std::string& program, int ranks,
          const std::string& size)
        : judge_(judge) {
        trial.program = program;
        trial.name = fmt::format("{} rank{}{}", ranks, ranks == 1 ? "" : "s", size);
        trial.ranks.resize(static_cast<std::size_t>(ranks));
        trial.expected.resize(trial.ranks.size());
        for (RankTask& rank : trial.ranks)
            rank.task = program;
    }

    int ranks() const { return static_cast<int>(trial.ranks.size()); }
    std::int64_t draw(const std::string& name, std::int64_t low,
                      std::int64_t high) const {
        return judge_.draw(own_name(name), low, high);
    }
    HostTensor normal(const std::string& name, const Shape& shape) const {
        HostTensor values = judge_.normal(own_name(name), shape);
        for (std::int64_t i = 0; i < values.elements(); ++i)
            values.set(i, 0.3 * values.at(i));
        return values;
    }
    one_device::HostTensors normals(const std::string& name, int count,
                                    const Shape& shape) const {
        one_device::HostTensors values;
        for (int i = 0; i < count; ++i)
            values.push_back(normal(fmt::format("{} {}", name, i), shape));
        return values;
    }

    void give(int rank, const std::string& name, const HostTensor& values) {
        of(rank).tensors.emplace(full(name), TaskTensor{values});
    }
    /// As "name 0", "name 1" …
    void give(int rank, const std::string& name, const one_device::HostTensors& values) {
        for (std::size_t i = 0; i < values.size(); ++i)
            give(rank, fmt::format("{} {}", name, i), values[i]);
    }
    void give_number(int rank, const std::string& name, std::int64_t value) {
        of(rank).numbers.emplace(full(name), value);
    }
    void may_download() {
        for (RankTask& rank : trial.ranks)
            rank.may_download = true;
    }
    void expect(int rank, const std::string& name, const HostTensor& values) {
        trial.expected[rank].emplace(full(name), values);
    }

    Trial trial;

  private:
    RankTask& of(int rank) { return trial.ranks[rank]; }
    std::string full(const std::string& name) const {
        return trial.program + ": " + name;
    }
    std::string own_name(const std::string& name) const {
        return fmt::format("{}, {}: {}", trial.program, trial.name, name);
    }

    const Judge& judge_;
};

}  // namespace lockstep::lessons
