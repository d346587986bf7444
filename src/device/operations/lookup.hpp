#pragma once

#include <algorithm>
#include <cstdint>

#include "src/core/philox.hpp"
#include "src/device/operation.hpp"

namespace lockstep::ops {

// Lookups of rows and columns by index, the columns of the largest values, sorted ids,
// and random numbers.

inline void check_table(const OperandCheck& check, const char* name,
                        const Tensor& table) {
    check.real(name, table);
    check.that(table.shape().dimensions() == 2,
               "{} has shape {}; (vocabulary, width) is expected", name, table.shape());
}

/// rows[i] = table[ids[i]], or zeros if the table is a shard and another shard has the
/// row.
struct Embedding {
    static constexpr const char* kName = "embedding";
    Tensor rows;
    Tensor table;
    Tensor ids;
    VocabularyShard shard;

    void check(const OperandCheck& check) {
        check_table(check, "table", table);
        check.dtype("ids", ids, DType::i32);
        check.that(ids.shape().dimensions() < Shape::kMaxDimensions,
                   "ids has {} dimensions; at most {} are expected",
                   ids.shape().dimensions(), Shape::kMaxDimensions - 1);
        shard = check.shard(shard, table.shape()[0]);
    }
    /// ids.shape + (width).
    void make(const auto& make) {
        std::int64_t extents[Shape::kMaxDimensions] = {};
        const int dimensions = ids.shape().dimensions();
        for (int d = 0; d < dimensions; ++d)
            extents[d] = ids.shape()[d];
        extents[dimensions] = table.shape()[1];
        make(rows, Shape(extents, dimensions + 1), table.dtype());
    }
    /// Rows that another shard has are charged, too.
    OperandList operands() const {
        return {sized(rows.bytes(), reads("table", table)), reads("ids", ids),
                makes("rows", rows)};
    }
    std::int64_t flops() const { return 0; }
    Derivation derivation() const { return Derivation::linear_in(0); }
    const Tensor& indices() const { return ids; }
    std::int64_t bound() const { return shard.whole; }
    void when_empty(const auto& fill) const { fill(rows, 0); }
};

/// d_table[ids[i]] += dy[i], in order of i, for the rows that the table holds.
struct EmbeddingBackward {
    static constexpr const char* kName = "embedding_backward";
    Tensor d_table;
    Tensor ids;
    Tensor dy;
    VocabularyShard shard;

    void check(const OperandCheck& check) {
        check_table(check, "d_table", d_table);
        check.dtype("ids", ids, DType::i32);
        check.dtype("dy", dy, d_table.dtype());
        check.matrix("dy", dy, ids.elements(), d_table.shape()[1]);
        shard = check.shard(shard, d_table.shape()[0]);
    }
    OperandList operands() const {
        return {sized(dy.bytes(), adds_to("d_table", d_table)), reads("ids", ids),
                reads("dy", dy)};
    }
    std::int64_t flops() const { return dy.elements(); }
    Derivation derivation() const { return Derivation::linear_in(2); }
    const Tensor& indices() const { return ids; }
    std::int64_t bound() const { return shard.whole; }
};

/// Each index names a row of `whole`; `list` has one row for each index.
inline void check_rows_by_index(const OperandCheck& check, const Tensor& whole,
                                const char* list_name, const Tensor& list,
                                const Tensor& index) {
    check.dtype("indices", index, DType::i32);
    check.dtype(list_name, list, whole.dtype());
    check.matrix(list_name, list, index.elements(), whole.shape().columns());
}

/// destination[i] = source[index[i]], row by row.
struct TakeRows {
    static constexpr const char* kName = "take_rows";
    Tensor destination;
    Tensor source;
    Tensor index;

    void check(const OperandCheck& check) const {
        check.own("source", source);
        check_rows_by_index(check, source, "destination", destination, index);
    }
    OperandList operands() const {
        return {sized(destination.bytes(), reads("source", source)),
                reads("indices", index), writes("destination", destination)};
    }
    std::int64_t flops() const { return 0; }
    Derivation derivation() const { return Derivation::linear_in(0); }
    const Tensor& indices() const { return index; }
    std::int64_t bound() const { return source.shape().matrix_rows(); }
    /// Returns the same operation as an Embedding.
    Embedding lookup() const { return {destination, source, index, {0, bound()}}; }
};

/// destination[index[i]] += source[i], row by row, in order of i.
struct AddRows {
    static constexpr const char* kName = "add_rows";
    Tensor destination;
    Tensor source;
    Tensor index;

    void check(const OperandCheck& check) const {
        check.real("destination", destination);
        check_rows_by_index(check, destination, "source", source, index);
    }
    OperandList operands() const {
        return {sized(source.bytes(), adds_to("destination", destination)),
                reads("indices", index), reads("source", source)};
    }
    std::int64_t flops() const { return source.elements(); }
    Derivation derivation() const { return Derivation::linear_in(2); }
    const Tensor& indices() const { return index; }
    std::int64_t bound() const { return destination.shape().matrix_rows(); }
    /// Returns the same operation as an EmbeddingBackward.
    EmbeddingBackward lookup_backward() const {
        return {destination, index, source, {0, bound()}};
    }
};

/// Each index names a column of `whole` in the index's own row; `list` has one element
/// for each index.
inline void check_columns_by_index(const OperandCheck& check, const char* whole_name,
                                   const Tensor& whole, const char* list_name,
                                   const Tensor& list, const Tensor& index) {
    check.real(whole_name, whole);
    check.dtype("indices", index, DType::i32);
    check.that(index.shape().matrix_rows() == whole.shape().matrix_rows(),
               "indices has shape {}, but {} has {}; the same number of rows is expected",
               index.shape(), whole_name, whole.shape());
    check.dtype(list_name, list, whole.dtype());
    check.matrix(list_name, list, index.shape().matrix_rows(), index.shape().columns());
}

/// destination[i][j] = source[i][index[i][j]].
struct TakeColumns {
    static constexpr const char* kName = "take_columns";
    Tensor destination;
    Tensor source;
    Tensor index;

    void check(const OperandCheck& check) const {
        check_columns_by_index(check, "source", source, "destination", destination,
                               index);
    }
    OperandList operands() const {
        return {sized(destination.bytes(), reads("source", source)),
                reads("indices", index), writes("destination", destination)};
    }
    std::int64_t flops() const { return 0; }
    Derivation derivation() const { return Derivation::linear_in(0); }
    const Tensor& indices() const { return index; }
    std::int64_t bound() const { return source.shape().columns(); }
};

/// destination[i][index[i][j]] += source[i][j], in order of j.
struct AddColumns {
    static constexpr const char* kName = "add_columns";
    Tensor destination;
    Tensor source;
    Tensor index;

    void check(const OperandCheck& check) const {
        check_columns_by_index(check, "destination", destination, "source", source,
                               index);
    }
    OperandList operands() const {
        return {sized(source.bytes(), adds_to("destination", destination)),
                reads("indices", index), reads("source", source)};
    }
    std::int64_t flops() const { return source.elements(); }
    Derivation derivation() const { return Derivation::linear_in(2); }
    const Tensor& indices() const { return index; }
    std::int64_t bound() const { return destination.shape().columns(); }
};

/// values[i] (k) = the k largest of row i of x, the largest first; indices[i] (k): their
/// columns.
struct TopK {
    static constexpr const char* kName = "top_k";
    Tensor values;
    Tensor indices;
    Tensor x;
    std::int64_t k = 1;
    ColumnGroups groups;

    void check(const OperandCheck& check) const {
        check.real("x", x);
        const std::int64_t rows = x.shape().matrix_rows(), columns = x.shape().columns();
        check.that(k >= 1 && k <= columns,
                   "the {} largest of {} columns; from 1 to all of them are expected", k,
                   columns);
        check_groups(check, columns);
        check.that(columns <= INT32_MAX, "x has {} columns; an i32 names up to {}",
                   columns, INT32_MAX);
        check.dtype("values", values, x.dtype());
        check.matrix("values", values, rows, k);
        check.dtype("indices", indices, DType::i32);
        check.matrix("indices", indices, rows, k);
    }
    OperandList operands() const {
        return {reads("x", x), writes("values", values), writes("indices", indices)};
    }
    /// Each element is compared once; twice if groups are chosen first.
    std::int64_t flops() const { return (groups.count > 1 ? 2 : 1) * x.elements(); }
    Derivation derivation() const { return {}; }

  private:
    void check_groups(const OperandCheck& check, std::int64_t columns) const {
        check.that(groups.count >= 1 && groups.count <= ColumnGroups::kMost,
                   "{} groups of columns; from 1 to {} are expected", groups.count,
                   ColumnGroups::kMost);
        check.that(columns % groups.count == 0,
                   "{} columns cannot be split into {} equal groups", columns,
                   groups.count);
        const std::int64_t width = columns / groups.count;
        check.that(groups.chosen >= 1 && groups.chosen <= groups.count,
                   "{} of {} groups of columns; from 1 to all of them are expected",
                   groups.chosen, groups.count);
        check.that(groups.best >= 1 && groups.best <= width,
                   "the {} best of a group of {} columns; from 1 to all of them are "
                   "expected",
                   groups.best, width);
        check.that(k <= groups.chosen * width,
                   "the {} largest of {} groups of {} columns; at most all of them are "
                   "expected",
                   k, groups.chosen, width);
    }
};

/// The places of ids (n, k) are numbered 0, 1, … row by row. order (n k) gets these
/// places, sorted by id. Places with equal ids are in ascending order, or, if by_columns,
/// in order of column and then of row. rows (n k) gets each place's row in ids, and
/// counts[i] the number of places with id i.
struct SortIds {
    static constexpr const char* kName = "sort_ids";
    Tensor order;
    Tensor rows;
    Tensor counts;
    Tensor ids;
    bool by_columns = false;

    void check(const OperandCheck& check) const {
        check.dtype("ids", ids, DType::i32);
        check.that(ids.shape().dimensions() >= 2,
                   "ids has shape {}; rows of ids are expected, as top_k gives them",
                   ids.shape());
        const std::int64_t places = ids.elements();
        check.that(places <= INT32_MAX, "ids has {} places; an i32 names up to {}",
                   places, INT32_MAX);
        check.count("order", order, places, DType::i32);
        check.count("rows", rows, places, DType::i32);
        check.dtype("counts", counts, DType::i32);
    }
    OperandList operands() const {
        return {reads("ids", ids), writes("order", order), writes("rows", rows),
                writes("counts", counts)};
    }
    std::int64_t flops() const { return 0; }
    Derivation derivation() const { return {}; }
    const Tensor& indices() const { return ids; }
    std::int64_t bound() const { return counts.elements(); }
    void when_empty(const auto& fill) const { fill(counts, 0); }
};

/// Checks which numbers are drawn: element (i, j) is the stream's number at the index
/// part.offset + i * part.pitch + j.
inline void check_part(const OperandCheck& check, const RandomPart& part,
                       const Tensor& destination) {
    const std::int64_t rows =
        std::max<std::int64_t>(destination.shape().matrix_rows(), 1);
    check.that(part.offset >= 0, "offset is {}; it must not be negative", part.offset);
    check.that(part.offset <= kMostElements && part.pitch <= kMostElements / rows,
               "offset is {}, and {} rows are {} numbers apart; offset, and rows times "
               "pitch, may be at most {}",
               part.offset, rows, part.pitch, kMostElements);
    check.that(part.pitch == 0 || part.pitch >= destination.shape().columns(),
               "rows are {} numbers apart, but destination has {} columns; the pitch "
               "must not be smaller",
               part.pitch, destination.shape().columns());
}
inline bool is_contiguous(const RandomPart& part, const Tensor& destination) {
    return part.pitch == 0 || part.pitch == destination.shape().columns();
}
inline Derivation drawn(const RandomStream& stream, const RandomPart& part,
                        const Tensor& destination) {
    return Derivation::random(stream, part.offset,
                              is_contiguous(part, destination) ? 0 : part.pitch);
}
/// Calls `draw(tensor, offset)` for every run of numbers that `destination` consists of.
template <typename Draw>
void each_run(const Tensor& destination, const RandomPart& part, Draw&& draw) {
    if (is_contiguous(part, destination)) return draw(destination, part.offset);
    const std::int64_t columns = destination.shape().columns();
    for (std::int64_t row = 0; row < destination.shape().matrix_rows(); ++row)
        draw(destination.slice(row * columns, columns), part.offset + row * part.pitch);
}

struct RandomUniform {
    static constexpr const char* kName = "random_uniform";
    Tensor destination;
    RandomStream stream;
    double low = 0;
    double high = 1;
    RandomPart part;

    void check(const OperandCheck& check) const {
        check.real("destination", destination);
        check.that(low <= high, "no value lies in [{}, {}]", low, high);
        check_part(check, part, destination);
    }
    OperandList operands() const { return {writes("destination", destination)}; }
    std::int64_t flops() const { return 0; }
    Derivation derivation() const { return drawn(stream, part, destination); }
};

struct RandomNormal {
    static constexpr const char* kName = "random_normal";
    Tensor destination;
    RandomStream stream;
    double mean = 0;
    double deviation = 1;
    RandomPart part;

    void check(const OperandCheck& check) const {
        check.real("destination", destination);
        check.that(deviation >= 0, "deviation is {}; it must not be negative", deviation);
        check_part(check, part, destination);
    }
    OperandList operands() const { return {writes("destination", destination)}; }
    std::int64_t flops() const { return 0; }
    Derivation derivation() const { return drawn(stream, part, destination); }
};

/// y = x / (1 - probability), or 0 for an element whose number of the stream, uniform in
/// [0, 1), is below the probability.
struct Dropout {
    static constexpr const char* kName = "dropout";
    Tensor y;
    Tensor x;
    double probability = 0;
    RandomStream stream;
    RandomPart part;

    void check(const OperandCheck& check) const {
        check.real("x", x);
        check.that(probability >= 0 && probability < 1,
                   "probability is {}; it must be in [0, 1)", probability);
        check_part(check, part, x);
    }
    void make(const auto& make) { make(y, x.shape(), x.dtype()); }
    OperandList operands() const { return {reads("x", x), makes("y", y)}; }
    std::int64_t flops() const { return x.elements(); }
    /// The derivation also says which numbers of the stream were drawn.
    Derivation derivation() const {
        Derivation derivation = drawn(stream, part, x);
        derivation.kind = Derivation::Kind::function;
        derivation.linear = Derivation::linear_in(0).linear;
        return derivation;
    }
};

using LookupOperations =
    OperationList<Embedding, EmbeddingBackward, TakeRows, AddRows, TakeColumns,
                  AddColumns, TopK, SortIds, RandomUniform, RandomNormal, Dropout>;

}  // namespace lockstep::ops
