#include "src/parallel/checkpoint.hpp"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/parallel/checkpoint_index.hpp"
#include "src/report/files.hpp"

namespace lockstep {

namespace {

namespace fs = std::filesystem;
using Role = SavedTensor::Role;

constexpr std::string_view kStep = "step-";
constexpr std::string_view kRank = "rank-";
constexpr std::string_view kSafetensors = ".safetensors";

std::string file_of_rank(int rank) {
    return fmt::format("{}{}{}", kRank, rank, kSafetensors);
}

/// Returns the number between `before` and `after` in a name, if there is one.
std::optional<std::int64_t> number_in(std::string_view name, std::string_view before,
                                      std::string_view after) {
    if (!name.starts_with(before) || !name.ends_with(after)) return std::nullopt;
    name.remove_prefix(before.size());
    if (name.size() < after.size()) return std::nullopt;
    name.remove_suffix(after.size());
    std::int64_t number = 0;
    const auto [end, error] =
        std::from_chars(name.data(), name.data() + name.size(), number);
    if (error != std::errc() || end != name.data() + name.size() || number < 0)
        return std::nullopt;
    return number;
}

/// Returns whether a save, finished or not, writes a file of this name:
/// "rank-0.safetensors", or ".rank-0.safetensors.123-4.part".
bool is_of_checkpoint(std::string_view name) {
    if (name.starts_with('.') && name.ends_with(kUnfinished)) {
        name.remove_prefix(1);
        return name.starts_with(kRank) || name.starts_with(kIndexFile);
    }
    return name == kIndexFile || number_in(name, kRank, kSafetensors);
}

bool is_whole(const fs::path& place) {
    try {
        CheckpointReader(place).check();
        return true;
    } catch (const UsageError&) {
        return false;
    } catch (const std::system_error& error) {
        if (error.code() == std::errc::no_such_file_or_directory) return false;
        throw;  // the files may be whole
    }
}

/// If several ranks hold copies, only the first rank of their line writes the parameter.
bool writes(const Parameter& parameter) {
    return std::ranges::all_of(parameter.placements, [](const Placement& placement) {
        return placement.is_sharded() || placement.line->rank() == 0;
    });
}

/// A tensor that this rank holds permanently, and which part of a whole tensor it is.
struct Held {
    std::string name;
    Tensor tensor;
    Part part;
    Role role;
    std::int64_t steps = 0;  ///< how often a parameter was updated
    bool writes = true;
};

/// Adds a chunk's parameters and its optimizer's state.
void add_chunk(std::vector<Held>& all, const TrainingState::Chunk& chunk) {
    const std::vector<Parameter*> shards = chunk.sync->shards();
    const Optimizer* const optimizer = chunk.optimizer;
    if (optimizer) optimizer->require_of("a checkpoint", shards);
    const auto& ordered = optimizer ? optimizer->parameters() : shards;
    std::map<std::string, bool> writing;
    for (std::size_t i = 0; i < ordered.size(); ++i) {
        const Parameter& shard = *ordered[i];
        writing[shard.name()] = writes(shard);
        all.push_back({shard.name(), shard.value, shard.part(), Role::parameter,
                       optimizer ? optimizer->steps()[i] : 0, writes(shard)});
    }
    if (!optimizer) return;
    for (const Optimizer::State& state : optimizer->state())
        all.push_back({state.name, state.tensor, state.parameter->part(), Role::optimizer,
                       0, writing.at(state.parameter->name())});
}

std::vector<Held> held_by(const TrainingState& state) {
    std::vector<Held> all;
    for (const TrainingState::Chunk& chunk : state.chunks)
        add_chunk(all, chunk);
    for (const Buffer& buffer : state.buffers)
        all.push_back({buffer.name, buffer.tensor, whole_part(buffer.tensor.shape()),
                       Role::buffer});
    std::set<std::string> names;
    for (const Held& entry : all)
        require(names.insert(entry.name).second,
                "a checkpoint: this rank has two tensors named {}", entry.name);
    return all;
}

/// Returns the sums over all ranks. No rank continues before all ranks have called this.
HostTensor sum_over(Device& device, Communicator& ranks, const std::vector<double>& own) {
    const MemoryScope scope(device, MemoryCategory::communication);
    const Shape shape = Shape::flat(static_cast<std::int64_t>(own.size()));
    const Tensor sums = device.upload(HostTensor::of<double>(shape, own));
    ranks.all_reduce(sums).wait();
    return device.download(sums);
}

void wait_for_all(Device& device, Communicator& ranks) {
    sum_over(device, ranks, {1});
}

/// Makes a checkpoint's folder, or empties the folder of an incomplete checkpoint.
/// Removes the index first, so that an index never lies beside files of another save.
void make_room(const fs::path& place) {
    make_durable_folder(place);
    remove_durably(place / kIndexFile);
    std::vector<fs::path> old;
    for (const auto& entry : fs::directory_iterator(place))
        if (is_of_checkpoint(entry.path().filename().string()))
            old.push_back(entry.path());
    for (const fs::path& path : old)
        fs::remove(path);
}

/// Returns a name that is the same on all ranks. Saves of different steps or values
/// almost never have the same name. `own` is the index of this rank's file.
std::string name_of_save(Device& device, Communicator& ranks,
                         const CheckpointIndex& own) {
    constexpr int kBits = 16;  // the sums of such numbers are exact
    const std::uint64_t hash = hash_of(own);
    std::vector<double> numbers;
    for (int shift = 0; shift < 64; shift += kBits)
        numbers.push_back(static_cast<double>(hash >> shift & ((1U << kBits) - 1)));
    return fmt::format("{:016x}", hashes_of(sum_over(device, ranks, numbers)).at(0));
}

void write_own_file(Device& device, Communicator& ranks, const fs::path& place,
                    std::int64_t step, const std::vector<Held>& held) {
    const std::string file = file_of_rank(ranks.rank());
    CheckpointIndex index;
    index.step = step;
    NamedTensors tensors;
    for (const Held& entry : held) {
        if (!entry.writes) continue;
        const auto& [name, values] =
            *tensors.emplace(entry.name, entry.tensor.device()->download(entry.tensor))
                 .first;
        index.tensors[name] = {entry.role,
                               values.dtype(),
                               entry.part.whole,
                               entry.steps,
                               {{file, entry.part, hashes_of(values)}}};
    }
    index.save = name_of_save(device, ranks, index);
    write_durable_safetensors(place / file, tensors, {{kIndexFile, index_text(index)}});
}

std::int64_t elements_named_by(const Part& part) {
    std::int64_t elements = 0;
    for (const Part::Rows& block : part.rows)
        elements += block.count * part.width();
    return elements;
}

/// For each saved tensor, returns how many elements this rank loads, if it writes() it.
std::vector<double> asked_for(const CheckpointReader& reader,
                              const std::vector<Held>& held) {
    std::map<std::string, double> asked;
    for (const Held& entry : held)
        if (entry.writes)
            asked[entry.name] += static_cast<double>(elements_named_by(entry.part));
    std::vector<double> numbers;
    numbers.reserve(reader.index().tensors.size());
    for (const auto& [name, tensor] : reader.index().tensors)
        numbers.push_back(asked[name]);
    return numbers;
}

/// Refuses a checkpoint of a larger model or of another optimizer. `asked` is the sum of
/// asked_for() over all ranks.
void require_all_asked_for(const CheckpointReader& reader, const HostTensor& asked,
                           bool has_optimizer) {
    std::int64_t place = 0;
    for (const auto& [name, tensor] : reader.index().tensors) {
        const double sum = asked.at(place++);
        if (tensor.role == Role::optimizer && !has_optimizer) continue;
        const auto expected = static_cast<double>(
            tensor.role == Role::parameter ? tensor.shape.elements() : 1);
        require(sum >= expected, "{}: the checkpoint has {} {}, {}",
                reader.place().string(), name, tensor.shape,
                sum == 0 ? "but no rank has it here"
                         : "but the ranks have only a part of it here");
    }
}

void restore_steps(const CheckpointReader& reader, Optimizer& optimizer) {
    std::vector<std::int64_t> steps;
    steps.reserve(optimizer.parameters().size());
    for (const Parameter* parameter : optimizer.parameters())
        steps.push_back(reader.index().tensors.at(parameter->name()).steps);
    optimizer.set_steps(std::move(steps));
}

}  // namespace

// lesson: save-checkpoint
void save_checkpoint(Device& device, Communicator& ranks, const fs::path& folder,
                     std::int64_t step, const TrainingState& state) {
    const fs::path place = folder / fmt::format("{}{:08}", kStep, step);
    require(device.has_numbers(),
            "save_checkpoint: a run that computes only shapes has no values to save");
    require(step >= 0, "save_checkpoint: the step is {}; 0 or more is expected", step);
    for (const auto& [sync, optimizer] : state.chunks)
        require(sync->unsaved() == nullptr, [&, sync = sync] {
            return fmt::format(
                "save_checkpoint: the strategy cannot continue without {}, which a "
                "checkpoint does not contain",
                sync->unsaved());
        });
    const std::vector<Held> held = held_by(state);
    const bool is_first = ranks.rank() == 0;
    const bool is_there = is_first && is_whole(place);
    if (is_first && !is_there) make_room(place);
    // All ranks wait for the first rank and learn whether the checkpoint exists.
    require(sum_over(device, ranks, {is_there ? 1.0 : 0.0}).at(0) == 0, [&] {
        return fmt::format("save_checkpoint: {} is a whole checkpoint already",
                           place.string());
    });
    write_own_file(device, ranks, place, step, held);
    wait_for_all(device, ranks);  // all files are written
    if (is_first) {
        std::vector<std::string> files;
        files.reserve(static_cast<std::size_t>(ranks.size()));
        for (int rank = 0; rank < ranks.size(); ++rank)
            files.push_back(file_of_rank(rank));
        write_durable_text_file(place / kIndexFile,
                                index_text(merge_indices(place, files)));
    }
    wait_for_all(device, ranks);  // the index is written
}

std::int64_t load_checkpoint(Device& device, Communicator& ranks,
                             const fs::path& checkpoint, const TrainingState& state) {
    CheckpointReader reader(checkpoint);
    const std::vector<Held> held = held_by(state);
    std::vector<HostTensor> values;
    values.reserve(held.size());
    for (const Held& entry : held)
        values.push_back(reader.read(entry.name, entry.part, entry.tensor.dtype()));
    const bool has_optimizer = std::ranges::any_of(
        state.chunks, [](const auto& chunk) { return chunk.optimizer; });
    require_all_asked_for(reader, sum_over(device, ranks, asked_for(reader, held)),
                          has_optimizer);
    for (const auto& [sync, optimizer] : state.chunks)
        sync->wait_for_values();  // a gather may still be reading the shards
    for (std::size_t i = 0; i < held.size(); ++i)
        held[i].tensor.device()->upload_into(held[i].tensor, values[i]);
    for (const auto& [sync, optimizer] : state.chunks) {
        for (Parameter* shard : sync->shards())
            ++shard->times_set;
        if (optimizer) restore_steps(reader, *optimizer);
        sync->send_values();
    }
    return reader.index().step;
}
// lesson: end

std::optional<fs::path> latest_checkpoint(const fs::path& folder) {
    if (!fs::is_directory(folder)) return std::nullopt;
    std::vector<std::pair<std::int64_t, fs::path>> steps;
    for (const auto& entry : fs::directory_iterator(folder)) {
        const std::string name = entry.path().filename().string();
        if (const auto step = number_in(name, kStep, ""))
            steps.emplace_back(*step, entry.path());
    }
    std::ranges::sort(steps, std::greater{});
    const auto last = std::ranges::find_if(
        steps, [](const auto& step) { return is_whole(step.second); });
    if (last == steps.end()) return std::nullopt;
    return last->second;
}

NamedTensors read_checkpoint(const fs::path& checkpoint) {
    CheckpointReader reader(checkpoint);
    NamedTensors tensors;
    for (const auto& [name, saved] : reader.index().tensors)
        if (saved.role != Role::optimizer)
            tensors.emplace(name,
                            reader.read(name, whole_part(saved.shape), saved.dtype));
    return tensors;
}

}  // namespace lockstep
