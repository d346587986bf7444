#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// An instruction tells a stage to do one of these with one micro-batch and
/// one of its chunks of the model.
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
/// then ".chunk" unless it is 0 and "@version" if one is given; "F3",
/// "B3.1", "F3@2". The letters are F, B (or its halves I and W), SA, RA,
/// SG, RG to send and receive activations and gradients, R to reduce
/// gradients and U for the optimizer's update; "R.1" is of chunk 1.
/// "F3@~5" reads an estimate of version 5, "B3!" other weights than its forward.
/// Instructions that begin together stand in one pair of brackets (Schedule
/// says which can): "(SA1;RG0)", "(F7.1;B3)".
struct Instruction {
    InstructionKind kind = InstructionKind::forward;
    int micro_batch = -1;  ///< from 0; -1 if the kind has none
    int chunk = 0;         ///< which of the stage's parts of the model
    /// The version of the weights that it reads, in optimizer steps of this chunk; -1 is
    /// the newest. A backward must read what its forward read, so that
    /// where a step lies between the two, it says which: "B1@0".
    int weight_version = -1;
    int line = 0;           ///< of the file that it was read from; 0 if none
    bool together = false;  ///< begins together with the one before it
    /// Reads an estimate of that version, made from the newest and from how the last
    /// steps changed it: of one to come, or of one that nobody kept.
    bool estimated = false;
    /// A backward, on purpose at other weights than its forward. The full check stops a
    /// run with it, and one with estimates, for what would be a mistake elsewhere (F25).
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
/// Is a forward, or a backward, or a half of it.
constexpr bool is_computation(InstructionKind kind) {
    return kind < InstructionKind::send_activation;
}
constexpr bool is_send(InstructionKind kind) {
    return kind == InstructionKind::send_activation ||
           kind == InstructionKind::send_gradient;
}

/// "forward", "backward-input", "receive of a gradient"; for sentences.
const char* name_of(InstructionKind kind);

/// "F3.1"; one that begins together with another is written alone.
std::string text_of(const Instruction& instruction);
/// Returns the texts of a stage's instructions as they stand in a file: "F1",
/// "(SA1;RG0)".
std::vector<std::string> texts_of(const std::vector<Instruction>& work);
/// "forward of micro-batch 3 (F3)".
std::string words_of(const Instruction& instruction);

/// Reads an instruction, or several that begin together. Empty if the text is none.
std::vector<Instruction> read_instructions(std::string_view text);

/// The place of an instruction.
struct Place {
    int stage = -1;
    int position = -1;  ///< from 0; sentences count from 1

    explicit operator bool() const { return stage >= 0; }
    bool operator==(const Place&) const = default;
};

/// A range of positions in a stage's list.
struct Positions {
    int first = 0;
    int last = 0;  ///< one behind the last

    int count() const { return last - first; }
    bool operator==(const Positions&) const = default;
};

/// How a stage's messages wait for one another.
enum class MessageQueues : std::uint8_t {
    /// In one queue, in order: as with one communicator of NCCL's for all stages, whose
    /// operations run one after another. Messages in one group go on at the same time.
    one,
    /// Those from one stage to another are in a queue of their own, so that what is sent
    /// and what is received never wait for one another: as with a communicator for each
    /// direction between two stages, which Megatron-LM has if there are two stages.
    /// Messages have no groups then. A schedule that hangs in one queue may hang so, too,
    /// on a GPU without room for all kernels that wait: the full check calls it F12.
    by_direction
};

/// The middle of a schedule that can go on for ever: a stretch of each stage's list that
/// stands there several times, each with later micro-batches, and later versions of
/// weights, than the one before.
struct Period {
    int micro_batches = 1;         ///< by which a copy is later than the one before
    int times = 1;                 ///< copies that stand one behind another
    std::vector<Positions> first;  ///< of each stage: the first copy
};

/// A pipeline schedule: the program of every stage, as data, so that it can
/// be validated, timed, drawn and executed.
///
/// The model is cut into parts, which follow one another. Each stage is a
/// device that holds one part, or several chunks of the model that do not
/// follow one another. A schedule says in which order each stage works. It
/// may leave messages out ("order of work"); with_messages() adds them.
///
/// A part may lie on two stages, each working on micro-batches of its own,
/// as bidirectional pipelines have it.
///
/// Instructions that begin together are either a group of messages, which are posted at
/// once, go on at the same time and are done when the last of them is; or a pair of a
/// forward and a backward (or its first half) that overlap.
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
    /// Parts of the model, one more than the largest.
    int part_count() const;
    int last_part() const { return part_count() - 1; }
    /// Stages that hold the part.
    int holders(int part) const;

    const Instruction& at(Place place) const { return work[place.stage][place.position]; }
    const std::vector<Instruction>& of(int stage) const { return work[stage]; }
    /// Returns the places of a stage's instructions, in order.
    std::vector<Place> places(int stage) const;
    /// Returns the positions of all that begin together with the instruction.
    Positions together(Place place) const;
    int instructions() const;
    /// Those that compute: what is neither a message nor at a step's end.
    int computations() const;
    bool has_messages() const;

    /// "stage 2, instruction 5 of 16, forward of micro-batch 3 (F3)",
    /// behind "FILE:LINE: " where it was read from a file.
    std::string where(Place place) const;
    /// "FILE:LINE: ", or "FILE: " if no line is given; empty if it was read from none.
    std::string from(int line = 0) const;
    /// The file that it was read from; empty if none.
    std::string file;
};

// The most that a schedule can have; more is refused.
inline constexpr int kMostStages = 16'384;
inline constexpr int kMostMicroBatches = 1'000'000;
inline constexpr int kMostChunks = 1'024;
inline constexpr std::int64_t kMostForwards = 4'000'000;

/// Generators make schedules from these sizes.
struct PipelineShape {
    int stages = 1;         ///< p
    int micro_batches = 1;  ///< m
    int chunks = 1;         ///< v
    /// Micro-batches between two updates of the weights; 0 is what the generator takes
    /// for itself, all of them if it flushes.
    int per_update = 0;
};

/// Returns what is wrong with the sizes, in a sentence; else none.
std::optional<std::string> size_problem(const PipelineShape& shape);

/// A schedule without work, its chunks dealt out round and round: chunk c
/// of stage s is part c * stages + s. Throws UsageError for sizes that are
/// not positive, or too large to be meant.
Schedule empty_schedule(const std::string& name, const PipelineShape& shape);

/// A schedule without work whose parts go to and fro over the stages: chunk c of stage s
/// is part c p + s if c is even, and part c p + p - 1 - s if it is odd, so that a
/// micro-batch turns round without a message. One chunk a stage is taken for two, which
/// make a V. Throws UsageError for an odd number of more.
Schedule empty_waves(const std::string& name, PipelineShape shape);

/// A schedule without work whose micro-batches enter at both ends: chunk 0 of stage s is
/// part s, on the way down, and chunk 1 is part p - 1 - s, on the way up. So two stages
/// hold each part. One chunk a stage is taken for the two. Throws UsageError if the
/// stages are odd in number.
Schedule empty_two_ways(const std::string& name, PipelineShape shape);

/// How every synchronous schedule ends: each chunk's gradients are reduced over all who
/// hold its part, then all weights are updated. Stages that meet do so in one order, by
/// part.
void end_step(Schedule& schedule);

}  // namespace lockstep
