#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/core/host_tensor.hpp"
#include "src/core/shape.hpp"

namespace lockstep {

// A vector counts as a matrix of one column.
std::int64_t matrix_rows(const Shape& shape);
std::int64_t matrix_columns(const Shape& shape);

/// The part of a whole tensor that one device's shard has: blocks of rows, all of which
/// begin at one column. A row of the shard is padding if no block names it. If a part is
/// flat, shard and whole are laid out as vectors, and a row is one element.
struct Part {
    /// Rows [at, at + count) of the shard are rows [from, from + count) of the whole.
    struct Rows {
        std::int64_t at = 0;
        std::int64_t from = 0;
        std::int64_t count = 0;
        bool operator==(const Rows&) const = default;
    };
    Shape whole;
    Shape shape;  ///< of the shard
    std::vector<Rows> rows;
    std::int64_t column = 0;  ///< the column of the whole at which each row begins
    bool flat = false;

    /// Return the number of elements in a row of the shard, and in a row of the whole.
    std::int64_t width() const { return flat ? 1 : matrix_columns(shape); }
    std::int64_t pitch() const { return flat ? 1 : matrix_columns(whole); }

    bool operator==(const Part&) const = default;
};

/// The part that contains the whole.
Part whole_part(const Shape& whole);
/// Rows [from, from + count) of a whole matrix; rows beyond the matrix's end are padding.
Part row_part(const Shape& whole, std::int64_t from, std::int64_t count);
/// Columns [from, from + count).
Part column_part(const Shape& whole, std::int64_t from, std::int64_t count);
/// Elements [from, from + count) of a whole that is laid out flat.
Part flat_part(const Shape& whole, std::int64_t from, std::int64_t count);
/// The whole consists of layers, one below the other; layer i has layers[i] rows. Each
/// layer is cut into `parts` equal shares, and the part has share `index` of each layer.
/// The last shares are padded if `parts` does not divide a layer's rows. If shares[i] is
/// less than `parts`, layer i is cut into only shares[i] shares; each of them belongs to
/// parts / shares[i] consecutive parts.
Part stacked_part(const Shape& whole, const std::vector<std::int64_t>& layers, int parts,
                  int index, const std::vector<std::int64_t>& shares = {});

/// `inner` is a part of the outer part's shard, which is sharded once more. Returns
/// `inner` as a part of the outer part's whole. Padding of either part stays padding.
Part part_of_part(const Part& outer, const Part& inner);

/// Returns whether the part is the whole.
bool holds_all(const Part& part);
/// Returns whether all rows and columns that the part names exist, in the shard and in
/// the whole.
bool is_sound(const Part& part);

/// Returns the number of elements of the whole that the part names: the shard's elements
/// without padding.
std::int64_t elements_of(const Part& part);
/// Elements of a whole that is laid out flat: `times` stretches of `count` elements each.
/// Stretch i, counted from 0, begins at element from + i * apart.
struct Stretches {
    std::int64_t from = 0;
    std::int64_t count = 0;
    std::int64_t times = 1;
    std::int64_t apart = 0;
    bool operator==(const Stretches&) const = default;
};
/// Returns the elements that the part names, in the shard's order: consecutive rows are
/// one stretch; columns of a matrix are one stretch for each row.
std::vector<Stretches> stretches_of(const Part& part);
constexpr const char* kPaddingAlone = "padding alone";
/// Describes the part in words, and says how much padding it has: "all", "rows 0–31,
/// 64–79, 96–111", "columns 32–63", "elements 0–15". Of many stretches, names the first
/// few and the last, and tells how many there are. For only padding: kPaddingAlone.
std::string text_of(const Part& part);

/// Calls visit(place in the shard, place in the whole, elements) for every run of
/// elements that are contiguous in both. Both places are counted in elements.
template <typename Visit>
void each_run(const Part& part, Visit&& visit) {
    const std::int64_t width = part.width(), pitch = part.pitch();
    for (const Part::Rows& block : part.rows) {
        const bool is_one_run = width == pitch;
        const std::int64_t runs = is_one_run ? (block.count > 0) : block.count;
        for (std::int64_t row = 0; row < runs; ++row)
            visit((block.at + row) * width, (block.from + row) * pitch + part.column,
                  is_one_run ? block.count * width : width);
    }
}

/// A run of elements that two parts of the same whole have in common.
struct CommonRun {
    std::int64_t at = 0;     ///< in the first part's shard
    std::int64_t other = 0;  ///< in the second part's shard
    std::int64_t count = 0;
};
/// Returns all common runs, in the whole's order. A part must not name an element twice.
/// Takes as long as sorting both parts' runs.
std::vector<CommonRun> common_runs(const Part& part, const Part& other);
/// Returns whether the parts together name each element of the whole exactly once.
bool cover_once(const Shape& whole, const std::vector<Part>& parts);

/// shard_of copies a shard out of the whole, and sets its padding to 0. put_shard copies
/// a shard without its padding into the whole.
HostTensor shard_of(const HostTensor& whole, const Part& part);
void put_shard(HostTensor& whole, const HostTensor& shard, const Part& part);

}  // namespace lockstep
