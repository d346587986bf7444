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

/// The part of a whole tensor that one holds, if devices share it out: blocks of rows,
/// one below the other, from one column on. Rows that no block names are padding. If a
/// part is flat, shard and whole are laid out as vectors, and a row is one element.
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
    bool flat = false;

    /// Returns the elements of one of the shard's rows, and of the whole's.
    std::int64_t width() const { return flat ? 1 : matrix_columns(shape); }
    std::int64_t pitch() const { return flat ? 1 : matrix_columns(whole); }

    bool operator==(const Part&) const = default;
};

/// All of it.
Part whole_part(const Shape& whole);
/// Rows [from, from + count) of a whole matrix; those beyond its end are padding.
Part row_part(const Shape& whole, std::int64_t from, std::int64_t count);
/// Columns [from, from + count).
Part column_part(const Shape& whole, std::int64_t from, std::int64_t count);
/// Elements [from, from + count) of a whole that is laid out flat.
Part flat_part(const Shape& whole, std::int64_t from, std::int64_t count);
/// Layers of so many rows each lie one below the other in the whole, and are all of it.
/// The part holds a share of the rows of each: share `index` of `parts` equal ones. The
/// last ones are padded if `parts` does not divide a layer's rows. A layer that has fewer
/// shares, a number of `shares` that is less than `parts`, is cut into so many, each of
/// which belongs to parts / shares parts side by side.
Part stacked_part(const Shape& whole, const std::vector<std::int64_t>& layers, int parts,
                  int index, const std::vector<std::int64_t>& shares = {});

/// Returns the part of the outer part's whole that `inner`, a part of what the outer one
/// holds, is: of a shard that is shared out once more. Padding of either is padding.
Part part_of_part(const Part& outer, const Part& inner);

/// Returns whether the part is the whole.
bool holds_all(const Part& part);
/// Returns whether all that the part names is there, in the shard and in the whole.
bool is_sound(const Part& part);

/// Returns how many elements of the whole the part names: its shard's, without padding.
std::int64_t elements_of(const Part& part);
/// Elements of a whole that is laid out flat: `times` stretches of `count` each, which
/// begin `apart` from one another, the first one at `from`.
struct Stretches {
    std::int64_t from = 0;
    std::int64_t count = 0;
    std::int64_t times = 1;
    std::int64_t apart = 0;
    bool operator==(const Stretches&) const = default;
};
/// Returns the elements that the part names, in the shard's order: rows that follow one
/// another are one stretch, columns of a matrix are stretches as many as rows.
std::vector<Stretches> stretches_of(const Part& part);
constexpr const char* kPaddingAlone = "padding alone";
/// Returns what it is of the whole, in words: "all", "rows 0–31, 64–79, 96–111", "columns
/// 32–63", "elements 0–15", and with how much padding. Of many stretches the first and
/// the last, and how many they are. A part that names none of it is kPaddingAlone.
std::string text_of(const Part& part);

/// Calls visit(place in the shard, place in the whole, elements) for every run of
/// elements that lie one behind the other in both; places are numbers of elements.
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
    std::int64_t at = 0;     ///< in the first one's shard
    std::int64_t other = 0;  ///< in the second one's
    std::int64_t count = 0;
};
/// Returns all of them, in the whole's order; each of the parts names an element once.
/// Costs a sort of both parts' runs.
std::vector<CommonRun> common_runs(const Part& part, const Part& other);
/// Returns whether the parts together name each element of the whole once.
bool cover_once(const Shape& whole, const std::vector<Part>& parts);

/// A shard of the whole, and back: `whole` gets what the shard holds. Padding is 0, and
/// left out.
HostTensor shard_of(const HostTensor& whole, const Part& part);
void put_shard(HostTensor& whole, const HostTensor& shard, const Part& part);

}  // namespace lockstep
