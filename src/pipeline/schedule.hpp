#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// What an instruction tells a stage to do, with one micro-batch and one of the stage's
/// chunks of the model.
enum class InstructionKind : std::uint8_t {
    forward,
    backward,         ///< both halves
    backward_input,   ///< the half that the stage before waits for
    backward_weight,  ///< the half that no stage waits for
    send_activation,  ///< to the stage that holds the next part
    recv_activation,
    send_gradient,  ///< to the stage that holds the previous part
    recv_gradient,
    reduce_gradients,  ///< over replicas; without a micro-batch
    optimizer_step     ///< without a micro-batch
};

inline constexpr int kInstructionKinds = 10;

/// One line of a stage's program.
///
/// Its text, in files and messages, is the letters of the kind, the micro-batch, then
/// ".chunk" (unless it is 0) and "@version" (if one is given): "F3", "B3.1", "F3@2". The
/// letters are F, B (or its halves I and W); SA, RA, SG and RG to send and receive
/// activations and gradients; R to reduce gradients; U for the optimizer's update. "R.1"
/// reduces chunk 1. "F3@~5" reads an estimate of version 5; "B3!" reads other weights
/// than its forward. Instructions that begin together are in one pair of brackets
/// (Schedule says which can): "(SA1;RG0)", "(F7.1;B3)".
struct Instruction {
    InstructionKind kind = InstructionKind::forward;
    int micro_batch = -1;  ///< from 0; -1 if the kind has none
    int chunk = 0;         ///< which of the stage's parts of the model
    /// The version of the weights that it reads, counted in optimizer steps of this
    /// chunk; -1 is the newest version. A backward must read the version that its forward
    /// read. If a step is between them, the backward names the version: "B1@0".
    int weight_version = -1;
    int line = 0;           ///< in the file that it was read from; 0 if none
    bool together = false;  ///< begins together with the instruction before it
    /// Reads an estimate of that version, computed from the newest weights and the last
    /// steps. The version may be a future one, or an old one that was not kept.
    bool estimated = false;
    /// This backward reads other weights than its forward, on purpose. The full check
    /// stops a run with such a backward, or with estimates: usually they are a mistake
    /// (F25).
    bool mixes_weights = false;

    bool operator==(const Instruction& other) const {
        return kind == other.kind && micro_batch == other.micro_batch &&
               chunk == other.chunk && weight_version == other.weight_version &&
               together == other.together && estimated == other.estimated &&
               mixes_weights == other.mixes_weights;
    }
};

constexpr bool has_micro_batch(InstructionKind kind) {
    return kind < InstructionKind::reduce_gradients;
}
constexpr bool is_message(InstructionKind kind) {
    return kind >= InstructionKind::send_activation &&
           kind <= InstructionKind::recv_gradient;
}
/// Returns whether the kind is a forward, a backward, or half of a backward.
constexpr bool is_computation(InstructionKind kind) {
    return kind < InstructionKind::send_activation;
}
constexpr bool is_send(InstructionKind kind) {
    return kind == InstructionKind::send_activation ||
           kind == InstructionKind::send_gradient;
}

/// "forward", "backward-input", "receive of a gradient": for use in sentences.
const char* name_of(InstructionKind kind);

/// "F3.1", without brackets even if it begins together with another instruction.
std::string text_of(const Instruction& instruction);
/// Returns the texts of a stage's instructions in the form of a file: "F1", "(SA1;RG0)".
std::vector<std::string> texts_of(const std::vector<Instruction>& work);
/// "forward of micro-batch 3 (F3)".
std::string words_of(const Instruction& instruction);

/// Reads an instruction, or several that begin together. Returns none if the text is not
/// valid.
std::vector<Instruction> read_instructions(std::string_view text);

/// The place of an instruction.
struct Place {
    int stage = -1;
    int position = -1;  ///< from 0; in sentences, from 1

    explicit operator bool() const { return stage >= 0; }
    bool operator==(const Place&) const = default;
};

/// A range of positions in a stage's list.
struct Positions {
    int first = 0;
    int last = 0;  ///< one past the last

    int count() const { return last - first; }
    bool operator==(const Positions&) const = default;
};

/// How a stage's messages wait for one another.
enum class MessageQueues : std::uint8_t {
    /// All messages of a stage wait in one queue, in order, as with one NCCL communicator
    /// for all stages, whose operations run one after another. Messages of one group run
    /// at the same time.
    one,
    /// Messages from one stage to another have their own queue, so sends and receives
    /// never wait for one another. This is like one communicator for each direction
    /// between two stages; Megatron-LM does so if there are two stages. Groups of
    /// messages are not possible then. A schedule that hangs with one queue may also hang
    /// with these queues, if a GPU has no room for all waiting kernels; the full check
    /// reports this as F12.
    by_direction
};

/// The middle of a schedule that can continue for ever: a range of each stage's list that
/// repeats. Each copy has later micro-batches and later versions of weights than the copy
/// before.
struct Period {
    int micro_batches = 1;         ///< each copy is this many micro-batches later
    int times = 1;                 ///< copies, one after another
    std::vector<Positions> first;  ///< the first copy, of each stage
};

/// A pipeline schedule: the program of every stage, as data, so that it can
/// be validated, timed, drawn and executed.
///
/// The model is cut into parts, one after another. Each stage is a device that holds one
/// or several parts (its chunks). A schedule gives the order in which each stage works.
/// It may leave out messages ("order of work"); with_messages() adds them.
///
/// Two stages may hold the same part, each for its own micro-batches, as in bidirectional
/// pipelines.
///
/// Instructions that begin together are a group of messages or a pair. The messages of a
/// group are posted at once, run at the same time and are done when the last one is. A
/// pair is a forward and a backward (or its first half) that overlap.
struct Schedule {
    std::string name;
    int stages = 0;         ///< p
    int micro_batches = 0;  ///< m
    int chunks = 1;         ///< v, of each stage
    /// Chunk c of stage s is part parts[s][c] of the model.
    std::vector<std::vector<int>> parts;
    std::vector<std::vector<Instruction>> work;  ///< of each stage
    MessageQueues queues = MessageQueues::one;
    std::optional<Period> period;  ///< none if nothing repeats

    int part(int stage, int chunk) const { return parts[stage][chunk]; }
    int part(Place place) const { return part(place.stage, at(place).chunk); }
    /// Returns the number of parts: the largest number of a part plus one.
    int part_count() const;
    int last_part() const { return part_count() - 1; }
    /// Returns how many stages hold the part.
    int holders(int part) const;

    const Instruction& at(Place place) const { return work[place.stage][place.position]; }
    const std::vector<Instruction>& of_stage(int stage) const { return work[stage]; }
    /// Returns the places of a stage's instructions, in order.
    std::vector<Place> places(int stage) const;
    /// Returns the positions of all instructions that begin together with this one.
    Positions together(Place place) const;
    int instructions() const;
    /// Counts the instructions that compute: all but messages, R and U.
    int computations() const;
    bool has_messages() const;

    /// "stage 2, instruction 5 of 16, forward of micro-batch 3 (F3)", after "FILE:LINE: "
    /// if the schedule was read from a file.
    std::string where(Place place) const;
    /// "FILE:LINE: ", or "FILE: " if no line is given; empty if there is no file.
    std::string from(int line = 0) const;
    /// The file that the schedule was read from; empty if none.
    std::string file;
};

// The largest sizes of a schedule; larger ones are refused.
inline constexpr int kMostStages = 16'384;
inline constexpr int kMostMicroBatches = 1'000'000;
inline constexpr int kMostChunks = 1'024;
inline constexpr std::int64_t kMostForwards = 4'000'000;

/// The sizes from which generators make schedules.
struct PipelineShape {
    int stages = 1;         ///< p
    int micro_batches = 1;  ///< m
    int chunks = 1;         ///< v
    /// Micro-batches between two updates of the weights. 0 is the generator's own
    /// default: all micro-batches, if it flushes.
    int per_update = 0;
};

/// Returns a sentence that says which size is wrong; none if all are right.
std::optional<std::string> size_problem(const PipelineShape& shape);

/// Makes a schedule without work. Its parts are assigned round-robin: chunk c of stage s
/// is part c * stages + s. Throws UsageError for sizes that are not positive or too
/// large.
Schedule empty_schedule(const std::string& name, const PipelineShape& shape);

/// Makes a schedule without work whose parts go back and forth over the stages: chunk c
/// of stage s is part c p + s if c is even, and part c p + p - 1 - s if it is odd. So a
/// micro-batch turns around without a message. If one chunk a stage is asked for, there
/// are two, which form a V. Throws UsageError for any other odd number of chunks.
Schedule empty_waves(const std::string& name, PipelineShape shape);

/// Makes a schedule without work whose micro-batches enter at both ends: chunk 0 of stage
/// s is part s, on the way down, and chunk 1 is part p - 1 - s, on the way up. So two
/// stages hold each part. If one chunk a stage is asked for, there are two. Throws
/// UsageError if the number of stages is odd.
Schedule empty_two_ways(const std::string& name, PipelineShape shape);

/// Adds the end of every synchronous schedule: each chunk's gradients are reduced over
/// all ranks that hold its part, then all weights are updated. All stages reduce in the
/// order of parts, so stages that share several parts reduce them in one order.
void end_step(Schedule& schedule);

}  // namespace lockstep
