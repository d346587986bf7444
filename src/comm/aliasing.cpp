#include "src/comm/aliasing.hpp"

#include <algorithm>
#include <stdexcept>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "src/run/fault_text.hpp"

namespace lockstep {

BufferUse buffers_of(const CommOperation& operation, int rank) {
    const VerbFacts verb = facts_of(operation.verb);
    const bool root = rank == operation.peer;
    const auto used = [](bool uses, const Tensor& tensor) {
        return uses && tensor && tensor.elements() > 0 ? &tensor : nullptr;
    };
    return {used(verb.reads(root), operation.input),
            used(verb.writes(root), operation.output)};
}

std::string buffer_text(const Tensor& tensor, std::int64_t begin, std::int64_t end) {
    const std::int64_t size = bytes_of(tensor.dtype());
    // In a flat buffer of many tensors, names help more than element numbers.
    const Storage& storage = *tensor.storage();
    const std::string names =
        storage.labels.size() > 1 ? " (" + storage.names(begin, end) + ")" : "";
    return fmt::format("elements {} to {}{} of the {} buffer made at {}", begin / size,
                       (end + size - 1) / size - 1, names, name_of(tensor.dtype()),
                       storage.allocated_at.text());
}

namespace {

std::string place_text(const Tensor& tensor) {
    return buffer_text(tensor, tensor.offset_bytes(),
                       tensor.offset_bytes() + tensor.bytes());
}

std::string in_place_rule(Verb verb) {
    if (facts_of(verb).gathers())
        return "input must be this rank's own block of output, or share no memory with "
               "it";
    if (facts_of(verb).scatters())
        return "output must be this rank's own block of input, or share no memory with "
               "it";
    return "input and output must be the same, or share no memory";
}

Diagnosis overlap_of(const Tensor& any, const std::string& name) {
    Diagnosis diagnosis = diagnosis_of("F20");
    diagnosis.communicator = name;
    diagnosis.parties.resize(1);
    diagnosis.parties[0].ranks = {any.device()->index()};
    return diagnosis;
}

/// A stretch of memory that consecutive operations of a group read or write.
struct Stretch {
    const Storage* storage;
    std::int64_t begin;
    std::int64_t end;
    bool written;
};

/// Collects the memory that a group's operations read and write. Add each operation, in
/// order, then call conflict(). Adjacent stretches are joined as they are added.
class Stretches {
  public:
    void add(const CommOperation& operation, int rank);

    /// Returns whether one operation writes memory that another reads or writes.
    bool conflict();

  private:
    /// If the last stretch of the same kind (read or written) is adjacent to `next`,
    /// extends that stretch. So blocks in the order of ranks become one stretch.
    void add(const Stretch& next);

    std::vector<Stretch> all_;
    /// The index of the last stretch that is only read, and of the last written stretch.
    std::size_t last_[2] = {static_cast<std::size_t>(-1), static_cast<std::size_t>(-1)};
};

Stretch stretch_of(const Tensor& tensor, bool written) {
    return {tensor.storage(), tensor.offset_bytes(),
            tensor.offset_bytes() + tensor.bytes(), written};
}

void Stretches::add(const CommOperation& operation, int rank) {
    const auto [read, written] = buffers_of(operation, rank);
    if (written != nullptr) add(stretch_of(*written, true));
    if (read == nullptr) return;
    Stretch rest = stretch_of(*read, false);
    if (written == nullptr || !read->overlaps(*written)) return add(rest);
    // An in-place operation also reads memory before and after the part that it writes.
    const Stretch own = stretch_of(*written, true);
    add({rest.storage, rest.begin, own.begin, false});
    rest.begin = own.end;
    add(rest);
}

bool Stretches::conflict() {
    std::sort(all_.begin(), all_.end(), [](const Stretch& a, const Stretch& b) {
        return std::tie(a.storage, a.begin) < std::tie(b.storage, b.begin);
    });
    const Storage* storage = nullptr;
    std::int64_t written_to = 0;
    std::int64_t used_to = 0;
    for (const Stretch& next : all_) {
        if (next.storage != storage) written_to = used_to = 0;
        storage = next.storage;
        if (next.begin < (next.written ? used_to : written_to)) return true;
        used_to = std::max(used_to, next.end);
        if (next.written) written_to = std::max(written_to, next.end);
    }
    return false;
}

void Stretches::add(const Stretch& next) {
    if (next.begin >= next.end) return;
    std::size_t& last = last_[next.written ? 1 : 0];
    if (last < all_.size() && all_[last].storage == next.storage) {
        Stretch& before = all_[last];
        if (before.end == next.begin) {
            before.end = next.end;
            return;
        }
        if (before.begin == next.end) {
            before.begin = next.begin;
            return;
        }
    }
    last = all_.size();
    all_.push_back(next);
}

/// Returns a buffer of `a` and a buffer of `b` that overlap although one of them is
/// written; null if there are none.
BufferUse clash(const CommOperation& a, const CommOperation& b, int rank) {
    const BufferUse one = buffers_of(a, rank);
    const BufferUse two = buffers_of(b, rank);
    const auto meet = [](const Tensor* x, const Tensor* y) {
        return x != nullptr && y != nullptr && x->overlaps(*y);
    };
    if (meet(one.written, two.written)) return {one.written, two.written};
    if (meet(one.read, two.written)) return {one.read, two.written};
    if (meet(one.written, two.read)) return {one.written, two.read};
    return {};
}

/// Returns whether one operation has its output in a storage that the other one uses. If
/// not, as for nearly all pairs, the two cannot clash.
bool may_write_into(const CommOperation& a, const CommOperation& b) {
    const auto one_way = [](const CommOperation& writer, const CommOperation& other) {
        const Storage* const written = writer.output.storage();
        return written != nullptr &&
               (written == other.input.storage() || written == other.output.storage());
    };
    return one_way(a, b) || one_way(b, a);
}

/// Throws the diagnosis of the first two operations of a group that must not share
/// memory, but do.
[[noreturn]] void explain(std::span<const CommOperation> operations, int rank,
                          const std::string& name) {
    for (std::size_t j = 1; j < operations.size(); ++j) {
        for (std::size_t i = 0; i < j; ++i) {
            const CommOperation& a = operations[i];
            const CommOperation& b = operations[j];
            const auto [mine, theirs] = clash(a, b, rank);
            if (mine == nullptr) continue;
            const auto does = [&](const CommOperation& operation, const Tensor* place) {
                return buffers_of(operation, rank).written == place ? "writes" : "reads";
            };
            Diagnosis diagnosis = overlap_of(*mine, name);
            diagnosis.sentence = fmt::format(
                "in one group rank {} starts {} at {}, which {} {}, and {} at {}, which "
                "{} {}: they run at the same time, so the values there are undefined",
                mine->device()->index(), text_of(a), a.at.text(), does(a, mine),
                place_text(*mine), text_of(b), b.at.text(), does(b, theirs),
                place_text(*theirs));
            Diagnosis::Party other = diagnosis.parties[0];
            diagnosis.parties[0].operation = text_of(a);
            diagnosis.parties[0].at = a.at;
            other.operation = text_of(b);
            other.differs = "overlapping buffer";
            other.at = b.at;
            diagnosis.parties.push_back(std::move(other));
            throw FaultError(std::move(diagnosis));
        }
    }
    throw std::logic_error("buffers of a group overlap, but no two of them do");
}

}  // namespace

void require_in_place_rule(const CommOperation& operation, int rank,
                           const std::string& name) {
    const auto [input, output] = buffers_of(operation, rank);
    if (input == nullptr || output == nullptr || !input->overlaps(*output)) return;
    const VerbFacts verb = facts_of(operation.verb);
    const bool input_is_part = verb.gathers();
    const Tensor& whole = input_is_part ? *output : *input;
    const Tensor& part = input_is_part ? *input : *output;
    const bool has_blocks = input_is_part || verb.scatters();
    const std::int64_t block =
        whole.offset_bytes() + (has_blocks ? rank * part.bytes() : 0);
    if (part.offset_bytes() == block) return;
    Diagnosis diagnosis = overlap_of(*input, name);
    diagnosis.sentence = fmt::format(
        "rank {} calls {} at {} with buffers that overlap: it reads {} and writes {}; {}",
        input->device()->index(), text_of(operation), operation.at.text(),
        place_text(*input), place_text(*output), in_place_rule(operation.verb));
    if (has_blocks) {
        const std::int64_t first = block / bytes_of(whole.dtype());
        diagnosis.details.push_back(
            fmt::format("this rank's own block is elements {} to {} of that buffer",
                        first, first + part.elements() - 1));
    }
    diagnosis.parties[0].operation = text_of(operation);
    diagnosis.parties[0].at = operation.at;
    throw FaultError(std::move(diagnosis));
}

void require_apart(std::span<const CommOperation> operations, int rank,
                   const std::string& name) {
    for (const CommOperation& operation : operations)
        require_apart(operation, rank, name);
    // The usual group has two operations: an exchange with neighbours.
    constexpr std::size_t kFew = 2;
    if (operations.size() < kFew) return;
    if (operations.size() == kFew) {
        if (may_write_into(operations[0], operations[1]) &&
            clash(operations[0], operations[1], rank).read != nullptr)
            explain(operations, rank, name);
        return;
    }
    Stretches stretches;
    for (const CommOperation& operation : operations)
        stretches.add(operation, rank);
    if (stretches.conflict()) explain(operations, rank, name);
}

}  // namespace lockstep
