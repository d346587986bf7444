#include "src/parallel/sharded_unit.hpp"

#include <algorithm>
#include <utility>

#include "src/core/require.hpp"
#include "src/parallel/flat_buffer.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep {

ShardedUnit::ShardedUnit(Device& device, Communicator& line,
                         std::vector<Parameter*> parameters, const Options& options)
    : device_(device),
      line_(line),
      parameters_(std::move(parameters)),
      packed_(options.shard_by == ShardBy::packed_rows),
      dtype_(parameters_.front()->dtype()) {
    for (const Parameter* parameter : parameters_)
        require(parameter->dtype() == dtype_,
                "{} and {} have the types {} and {}; all parameters of a sharded unit "
                "must have the same type",
                parameters_.front()->name(), parameter->name(), name_of(dtype_),
                name_of(parameter->dtype()));
    cut(options);
    make_shards(options);
}

// lesson: sharded-unit
void ShardedUnit::cut(const Options& options) {
    const std::int64_t n = line_.size();
    if (options.shard_by == ShardBy::flat) {
        for (auto& alike : placed_alike(parameters_, line_)) {
            std::int64_t elements = 0;
            for (const Parameter* parameter : alike)
                elements += parameter->shape().elements();
            pieces_.push_back({std::move(alike), (elements + n - 1) / n});
        }
    } else {
        for (Parameter* parameter : parameters_) {
            const Shape& shape = parameter->shape();
            const std::int64_t rows = (matrix_rows(shape) + n - 1) / n;
            pieces_.push_back({{parameter}, rows * matrix_columns(shape)});
        }
    }
    std::int64_t end = 0;
    for (Piece& piece : pieces_) {
        piece.offset = end;
        end += piece.share;
    }
}

void ShardedUnit::fetch() {
    if (values_.device() == &device_ || fetched_ || is_whole_ || gather_) return;
    const MemoryScope scope(device_, MemoryCategory::communication);
    fetched_ = device_.empty(values_.shape(), dtype_);
    fetch_ = device_.start_copy(fetched_, values_);
}

void ShardedUnit::gather() {
    if (is_whole_ || gather_) return;
    fetch();
    if (fetch_) fetch_->wait();
    fetch_.reset();
    const Tensor& own = fetched_ ? fetched_ : values_;
    const MemoryScope scope(device_, MemoryCategory::parameters);
    const int n = line_.size();
    if (packed_) {
        message_ = device_.empty({n * own.elements()}, dtype_);
        gather_ = line_.all_gather(message_, own);
        return;
    }
    Group group = line_.group();
    for (Piece& piece : pieces_) {
        piece.values = device_.empty({n * piece.share}, dtype_);
        group.all_gather(piece.values, share_of(own, piece));
    }
    gather_ = group.start();
}

void ShardedUnit::open() {
    ++open_;
    if (is_whole_) return;
    gather();
    gather_->wait();
    gather_.reset();
    fetched_ = {};
    if (packed_) unpack();
    for (const Piece& piece : pieces_)
        show(piece, piece.values, &Parameter::value);
    is_whole_ = true;
}

void ShardedUnit::close(bool keep) {
    if (--open_ == 0 && !keep) drop();
}

void ShardedUnit::make_gradients() {
    if (has_gradients_) return;
    const MemoryScope scope(device_, MemoryCategory::gradients);
    for (Piece& piece : pieces_) {
        piece.gradients = device_.zeros({line_.size() * piece.share}, dtype_);
        show(piece, piece.gradients, &Parameter::gradient);
    }
    has_gradients_ = true;
}

void ShardedUnit::reduce(bool adds) {
    std::vector<SummedShare> sums;
    if (packed_) sums.push_back({packed_gradients(), gradients_});
    for (Piece& piece : pieces_) {
        if (!packed_) sums.push_back({piece.gradients, share_of(gradients_, piece)});
        piece.gradients = {};
        show(piece, {}, &Parameter::gradient);
    }
    has_gradients_ = false;
    sum_.start(device_, line_, std::move(sums), adds);
}
// lesson: end

void ShardedUnit::show(const Piece& piece, const Tensor& whole,
                       Tensor Parameter::*member) {
    std::int64_t begin = 0;
    for (Parameter* parameter : piece.parameters) {
        const Shape& shape = parameter->shape();
        parameter->*member =
            whole ? whole.slice(begin, shape.elements()).reshaped(shape) : Tensor();
        if (whole) parameter->name_tensor(parameter->*member);
        begin += shape.elements();
    }
}

void ShardedUnit::drop() {
    for (auto* copy : {&fetch_, &gather_}) {
        if (*copy) (*copy)->wait();
        copy->reset();
    }
    for (Piece& piece : pieces_) {
        piece.values = {};
        show(piece, {}, &Parameter::value);
    }
    message_ = fetched_ = {};
    is_whole_ = false;
}

// A packed message is (n, all shares): each rank's shares of all pieces lie in one row.

void ShardedUnit::unpack() {
    const MemoryScope scope(device_, MemoryCategory::parameters);
    const std::int64_t n = line_.size();
    const Tensor from = message_.reshaped({n, values_.elements()});
    for (Piece& piece : pieces_) {
        piece.values = device_.empty({n * piece.share}, dtype_);
        device_.copy_columns(piece.values.reshaped({n, piece.share}), 0, from,
                             piece.offset, piece.share);
    }
    message_ = {};
}

Tensor ShardedUnit::packed_gradients() {
    const MemoryScope scope(device_, MemoryCategory::communication);
    const std::int64_t n = line_.size();
    Tensor message = device_.empty({n, values_.elements()}, dtype_);
    for (const Piece& piece : pieces_)
        device_.copy_columns(message, piece.offset,
                             piece.gradients.reshaped({n, piece.share}), 0, piece.share);
    return message.flat();
}

void ShardedUnit::make_shards(const Options& options) {
    Device& home = options.home ? *options.home : device_;
    std::optional<PinnedMemory> pinned;
    if (options.home) pinned.emplace(home);
    const Shape shares = {pieces_.back().offset + pieces_.back().share};
    {
        const MemoryScope scope(home, MemoryCategory::parameters);
        values_ = home.zeros(shares, dtype_);
    }
    const MemoryScope scope(home, MemoryCategory::gradients);
    gradients_ = home.zeros(shares, options.reduce_in.value_or(dtype_));
    for (Piece& piece : pieces_) {
        const Tensor values = share_of(values_, piece);
        const Tensor gradients = share_of(gradients_, piece);
        const std::int64_t first = line_.rank() * piece.share;
        if (options.shard_by == ShardBy::flat) {
            piece.shards = shards_in(piece.parameters, {first, piece.share}, values,
                                     gradients, line_);
        } else {
            const Parameter& whole = *piece.parameters.front();
            const std::int64_t rows = piece.share / matrix_columns(whole.shape());
            piece.shards.push_back(
                make_shard(whole, row_part(whole.shape(), line_.rank() * rows, rows),
                           values, gradients, line_));
        }
        fill(piece);
        for (const auto& shard : piece.shards)
            declare_again(*shard);
    }
    for (Parameter* parameter : parameters_)
        parameter->value = parameter->gradient = {};
}

/// Fills the piece's shards, from the whole values if they exist, else with the
/// parameters' initial numbers.
void ShardedUnit::fill(const Piece& piece) {
    const std::int64_t first = line_.rank() * piece.share;
    std::int64_t begin = 0;  // where the parameter begins in the whole
    std::size_t next = 0;
    for (const Parameter* parameter : piece.parameters) {
        const std::int64_t end = begin + parameter->shape().elements();
        const std::int64_t from = std::max(begin, first);
        const std::int64_t count = std::min(end, first + piece.share) - from;
        if (count > 0) {
            Parameter& shard = *piece.shards[next++];
            if (parameter->value)
                move_to(shard.value.slice(0, count),
                        parameter->value.slice(from - begin, count));
            else
                shard.set_initial(parameter->initial());
        }
        begin = end;
    }
}

/// Copies values to the shards, which may live on the host.
void ShardedUnit::move_to(const Tensor& place, const Tensor& values) {
    if (place.device() == &device_)
        device_.copy(place, values);
    else
        device_.start_copy(place, values).wait();
}

std::vector<Parameter*> ShardedUnit::shards() const {
    std::vector<Parameter*> all;
    for (const Piece& piece : pieces_)
        for (const auto& shard : piece.shards)
            all.push_back(shard.get());
    return all;
}

}  // namespace lockstep
