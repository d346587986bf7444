#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lessons/assignments/classifier.hpp"

namespace lockstep::lessons {

/// A classifier, and the rows of each rank's micro-batches: a case of the assignments in
/// which ranks train one network together.
struct MicroBatchCase {
    std::string label;                            ///< "small buckets"
    std::vector<std::vector<std::int64_t>> rows;  ///< by rank, of each micro-batch
    int layers = 3;
    std::int64_t width = 7;
    std::int64_t features = 5;
    std::int64_t classes = 4;

    std::int64_t ranks() const { return static_cast<std::int64_t>(rows.size()); }
    std::int64_t batch_rows() const;
    /// "small buckets, 2 ranks, micro-batches of 3+1, 2 rows"
    std::string name() const;
    /// The name, a rank, and what is asked of it.
    std::string on_rank(std::size_t rank, const std::string& what) const;

    std::vector<std::string> layer_names() const;  ///< "layer0" and on
    /// Names and shapes of the parameters, in the network's order.
    std::vector<std::pair<std::string, Shape>> parameters() const;
    std::int64_t in(int layer) const { return layer == 0 ? features : width; }
    std::int64_t out(int layer) const { return layer + 1 == layers ? classes : width; }
};

/// Draws a network's sizes, and the rows of so many micro-batches of each rank, whose
/// last has one at least; anew for each grading.
MicroBatchCase draw_case(const Judge& judge, const std::string& label,
                         const std::vector<int>& micro_batches);

NetworkTensors draw_network(const Judge& judge, const MicroBatchCase& one);

/// Draws the rows of each rank, of all its micro-batches.
std::vector<ClassifiedRows> draw_rows(const Judge& judge, const MicroBatchCase& one);

/// Runs a task on the case's ranks. To what each is given the rows come: "x" and
/// "targets" of all its micro-batches, which given_batches() takes apart.
const TaskResult& run_on_rows(Judge& judge, const MicroBatchCase& one,
                              std::vector<RankTask> given);

}  // namespace lockstep::lessons
