#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// What a stage can be told to do with one micro-batch and one of its
/// chunks of the model.
enum class InstructionKind : std::uint8_t {
    forward,
    backward,         ///< both halves
    backward_input,   ///< the half that the stage before waits for
    backward_weight,  ///< the half that nobody waits for
    send_activation,  ///< to the stage that holds the next part
    recv_activation,
    send_gradient,  ///< to the stage that holds the part before
    recv_gradient,
    reduce_gradients,  ///< over replicas; without a micro-batch
    optimizer_step     ///< likewise
};

inline constexpr int kInstructionKinds = 10;

/// One line of a stage's program.
///
/// As text, in files and messages: letters for the kind, the micro-batch,
/// then ".chunk" unless it is 0 and "@version" where one is given; "F3",
/// "B3.1", "F3@2". The letters are F, B (or its halves I and W), SA, RA,
/// SG, RG to send and receive activations and gradients, R to reduce
/// gradients and U for the optimizer's update; "R.1" is of chunk 1.
struct Instruction {
    InstructionKind kind = InstructionKind::forward;
    int micro_batch = -1;  ///< from 0; -1 where the kind has none
    int chunk = 0;         ///< which of the stage's parts of the model
    /// Which weights it reads, counted in optimizer steps of this chunk; -1
    /// is the newest. A backward must read what its forward read, so that
    /// where a step lies between the two, it says which: "B1@0".
    int weight_version = -1;
    int line = 0;  ///< of the file that it was read from; 0 where none

    bool operator==(const Instruction& other) const {
        return kind == other.kind && micro_batch == other.micro_batch &&
               chunk == other.chunk &&
               weight_version == other.weight_version;
    }
};

constexpr bool has_micro_batch(InstructionKind kind) {
    return kind < InstructionKind::reduce_gradients;
}
constexpr bool is_message(InstructionKind kind) {
    return kind >= InstructionKind::send_activation &&
           kind <= InstructionKind::recv_gradient;
}
constexpr bool is_send(InstructionKind kind) {
    return kind == InstructionKind::send_activation ||
           kind == InstructionKind::send_gradient;
}

/// "forward", "backward-input", "receive of a gradient"; for sentences.
const char* name_of(InstructionKind kind);

/// "F3.1".
std::string text_of(const Instruction& instruction);
/// "forward of micro-batch 3 (F3)".
std::string words_of(const Instruction& instruction);

/// None where the text is no instruction.
std::optional<Instruction> read_instruction(std::string_view text);

}  // namespace lockstep
