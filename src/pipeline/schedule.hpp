#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/pipeline/instruction.hpp"

namespace lockstep {

/// Where an instruction stands.
struct Place {
    int stage = -1;
    int position = -1;  ///< from 0; sentences count from 1

    explicit operator bool() const { return stage >= 0; }
    bool operator==(const Place&) const = default;
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
struct Schedule {
    std::string name;
    int stages = 0;         ///< p
    int micro_batches = 0;  ///< m
    int chunks = 1;         ///< v, of each stage
    /// Which part of the model chunk c of stage s is: parts[s][c].
    std::vector<std::vector<int>> parts;
    std::vector<std::vector<Instruction>> work;  ///< of each stage

    int part(int stage, int chunk) const { return parts[stage][chunk]; }
    int part(Place place) const {
        return part(place.stage, at(place).chunk);
    }
    /// Parts of the model, one more than the largest.
    int part_count() const;
    int last_part() const { return part_count() - 1; }
    /// Stages that hold the part.
    int holders(int part) const;

    const Instruction& at(Place place) const {
        return work[place.stage][place.position];
    }
    const std::vector<Instruction>& of(int stage) const {
        return work[stage];
    }
    int instructions() const;
    /// Those that compute: what is neither a message nor at a step's end.
    int computations() const;
    bool has_messages() const;

    /// "stage 2, instruction 5 of 16, forward of micro-batch 3 (F3)",
    /// behind "FILE:LINE: " where it was read from a file.
    std::string where(Place place) const;
    /// The file that it was read from; empty where none.
    std::string file;
};

// What can be meant; more is refused.
inline constexpr int kMostStages = 16'384;
inline constexpr int kMostMicroBatches = 1'000'000;
inline constexpr int kMostChunks = 1'024;
inline constexpr std::int64_t kMostForwards = 4'000'000;

/// What generators make schedules from.
struct PipelineShape {
    int stages = 1;         ///< p
    int micro_batches = 1;  ///< m
    int chunks = 1;         ///< v
};

/// What is wrong with the sizes, in a sentence; none where they can be.
std::optional<std::string> size_problem(const PipelineShape& shape);

/// A schedule without work, its chunks dealt out round and round: chunk c
/// of stage s is part c * stages + s. Throws UsageError for sizes that are
/// not positive, or too large to be meant.
Schedule empty_schedule(const std::string& name,
                        const PipelineShape& shape);

/// How every synchronous schedule ends: each chunk's gradients are reduced
/// over replicas, then all weights are updated.
void end_step(Schedule& schedule);

}  // namespace lockstep
