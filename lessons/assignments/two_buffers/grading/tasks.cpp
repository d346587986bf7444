#include <fmt/format.h>

#include "adapters.hpp"
#include "lessons/assignments/leave_schedule.hpp"
#include "src/course/task.hpp"

namespace lockstep {

namespace {

/// Reads a stage's list from a tensor (instructions, 3): kind, micro-batch and version.
std::vector<Instruction> given_list(Rank& rank, const TaskInputs& in) {
    const HostTensor rows = rank.device().download(in.tensor("list"));
    std::vector<Instruction> list;
    for (std::int64_t i = 0; i < rows.elements(); i += 3) {
        Instruction& each = list.emplace_back();
        each.kind = static_cast<InstructionKind>(rows.at(i));
        each.micro_batch = static_cast<int>(rows.at(i + 1));
        each.weight_version = static_cast<int>(rows.at(i + 2));
    }
    return list;
}

/// Outputs a line for each version.
void kept_versions(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const std::vector<Instruction> list = given_list(rank, in);
    const auto text = [&](int position) {
        return position < 0 || position >= std::ssize(list)
                   ? std::to_string(position)
                   : fmt::format("{} ({})", position, text_of(list[position]));
    };
    int version = 0;
    for (const Kept& kept : adapters::kept_versions(list))
        out.texts["lines"] += fmt::format("version {}: made {}, dropped {}\n", version++,
                                          text(kept.made), text(kept.dropped));
}

/// Reads the bytes of each stage from a tensor (stages, 4).
std::vector<StageBytes> given_bytes(Rank& rank, const TaskInputs& in) {
    const HostTensor rows = rank.device().download(in.tensor("bytes"));
    const auto at = [&](std::int64_t i) { return static_cast<std::int64_t>(rows.at(i)); };
    std::vector<StageBytes> bytes;
    for (std::int64_t i = 0; i < rows.elements(); i += 4)
        bytes.push_back({at(i), at(i + 1), at(i + 2), at(i + 3)});
    return bytes;
}

/// Outputs a line for each stage, and the bytes that it holds.
void most_bytes(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const std::vector<StageBytes> bytes = given_bytes(rank, in);
    const Choice choice{static_cast<Scheme>(in.integer("scheme")),
                        in.integer("per_update")};
    const auto stages = static_cast<int>(bytes.size());
    HostTensor& most = out.values["most"] = HostTensor({stages}, DType::f64);
    for (int stage = 0; stage < stages; ++stage) {
        const StageBytes& each = bytes[stage];
        const std::int64_t held = adapters::most_bytes(choice, stages, stage, each);
        most.set(stage, static_cast<double>(held));
        out.texts["lines"] += fmt::format(
            "stage {}, whose weights are {} bytes, activations {}, gradients {}, state "
            "{}, holds {}\n",
            stage, each.weights, each.activations, each.gradients, each.optimizer, held);
    }
}

void fastest(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    Setting setting;
    setting.bytes = given_bytes(rank, in);
    setting.stages = static_cast<int>(setting.bytes.size());
    setting.memory = in.number("memory");
    setting.most_per_update = in.integer("most_per_update");
    setting.most_late = in.integer("most_late");
    setting.forward = in.number("forward");
    setting.backward = in.number("backward");
    setting.update = in.number("update");
    const std::optional<Choice> choice = adapters::fastest(setting);
    HostTensor chosen({choice ? 2 : 0}, DType::f64);
    if (choice) {
        chosen.set(0, static_cast<int>(choice->scheme));
        chosen.set(1, choice->per_update);
    }
    out.values["chosen"] = chosen;
}

}  // namespace

Tasks tasks() {
    return {{"two_buffers", leaves_schedule([](const TaskInputs& in) {
                 return adapters::two_buffers(in.integer("stages"),
                                              in.integer("micro_batches"),
                                              in.integer("per_update"));
             })},
            {"kept_versions", kept_versions},
            {"most_bytes", most_bytes},
            {"fastest", fastest}};
}

}  // namespace lockstep
