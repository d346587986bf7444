#include <string>

#include "adapters.hpp"
#include "src/comm/chunks.hpp"
#include "src/course/task.hpp"

namespace lockstep {

namespace {

/// Returns a task that outputs a rank's own chunk and, if the collective gathers, all
/// chunks. If the buffer then has another shape, each output is the whole buffer.
Task on_the_buffer(void (*collective)(Rank&, const Tensor&), bool gathers) {
    return [=](Rank& rank, const TaskInputs& in, TaskOutputs& out) {
        const Tensor& buffer = in.tensor("buffer");
        const Shape given = buffer.shape();
        collective(rank, buffer);
        const auto leave = [&](const std::string& name, int index) {
            const Chunk part = chunk(given.elements(), rank.size(), index);
            out.tensors[name] =
                buffer.shape() == given ? buffer.slice(part.begin, part.count) : buffer;
        };
        leave("own chunk", rank.index());
        for (int index = 0; gathers && index < rank.size(); ++index)
            leave("chunk " + std::to_string(index), index);
    };
}

}  // namespace

Tasks tasks() {
    return {{"reduce_scatter", on_the_buffer(adapters::reduce_scatter, false)},
            {"all_gather", on_the_buffer(adapters::all_gather, true)},
            {"all_reduce", on_the_buffer(adapters::all_reduce, true)}};
}

}  // namespace lockstep
