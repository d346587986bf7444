#pragma once

#include <cstdint>
#include <vector>

#include "src/core/host_tensor.hpp"
#include "src/core/shape.hpp"

namespace lockstep {

// A vector counts as a matrix of one column.
std::int64_t matrix_rows(const Shape& shape);
std::int64_t matrix_columns(const Shape& shape);

/// The part of a whole tensor that one holds, if devices share it out: blocks of rows,
/// one below the other, from one column on. Rows that no block names are padding.
struct Part {
    /// Rows [at, at + count) are the whole's [from, from + count).
    struct Rows {
        std::int64_t at = 0;
        std::int64_t from = 0;
        std::int64_t count = 0;
        bool operator==(const Rows&) const = default;
    };
    Shape whole;
    Shape shape;  ///< of the shard
    std::vector<Rows> rows;
    std::int64_t column = 0;  ///< of the whole, where each row begins

    bool operator==(const Part&) const = default;
};

/// All of it.
Part whole_part(const Shape& whole);
/// Rows [from, from + count) of a whole matrix; those beyond its end are padding.
Part row_part(const Shape& whole, std::int64_t from, std::int64_t count);
/// Columns [from, from + count).
Part column_part(const Shape& whole, std::int64_t from, std::int64_t count);
/// Layers of so many rows each lie one below the other in the whole, and are all of it.
/// The part holds a share of the rows of each: share `index` of `parts` equal ones. The
/// last ones are padded if `parts` does not divide a layer's rows.
Part stacked_part(const Shape& whole, const std::vector<std::int64_t>& layers, int parts,
                  int index);

/// Returns the part of the outer part's whole that `inner`, a part of what the outer one
/// holds, is: of a shard that is shared out once more. Padding of either is padding.
Part part_of_part(const Part& outer, const Part& inner);

/// Returns whether the part is the whole.
bool holds_all(const Part& part);
/// Returns whether all that the part names is there, in the shard and in the whole.
bool is_sound(const Part& part);

/// Calls visit(place in the shard, place in the whole, elements) for every row that the
/// part names; places are numbers of elements.
template <typename Visit>
void each_row(const Part& part, Visit&& visit) {
    const std::int64_t columns = matrix_columns(part.shape);
    const std::int64_t pitch = matrix_columns(part.whole);
    for (const Part::Rows& block : part.rows)
        for (std::int64_t row = 0; row < block.count; ++row)
            visit((block.at + row) * columns, (block.from + row) * pitch + part.column,
                  columns);
}

/// A shard of the whole, and back: `whole` gets what the shard holds. Padding is 0, and
/// left out.
HostTensor shard_of(const HostTensor& whole, const Part& part);
void put_shard(HostTensor& whole, const HostTensor& shard, const Part& part);

}  // namespace lockstep
