#pragma once

#include <string>
#include <vector>

#include "src/comm/mesh_shape.hpp"

namespace lockstep {

/// Where a picture of a mesh has its ranks: in rows and columns, in reading order. Rows
/// are of the slower axes, columns of the faster ones; an axis of one rank is not to be
/// seen. One axis may be cut into runs, which then lie below one another:
///
///     dp 0–3     0  1  2  3
///     dp 4–7     4  5  6  7
class MeshLayout {
  public:
    /// What the place is worth that a picture takes.
    struct Room {
        int columns = 1;    ///< at most; at least 1
        double ratio = 1;   ///< of the picture's width to its height
        double column = 1;  ///< its width, in any unit
        double row = 1;     ///< its height, in that unit
    };
    /// The layout whose ratio is nearest to that of the room, of those that fit.
    /// Layouts that cut an axis count as worse.
    MeshLayout(const MeshShape& shape, const Room& room);

    int rows() const { return rows_; }
    int columns() const { return columns_; }
    /// -1 if there is none: a last run may be shorter.
    int rank_at(int row, int column) const;

    /// Axes that tell rows apart, and the places of a row along them: "0", or "0–3" of
    /// an axis that is cut.
    std::vector<std::string> row_axes() const;
    std::vector<std::string> row_places(int row) const;

    /// Axes that tell columns apart, the slowest first.
    std::vector<std::string> column_axes() const;
    /// How many columns share a place along the axis; the next ones have the next place.
    int columns_a_place(const std::string& axis) const;

  private:
    std::vector<MeshShape::Axis> axes_;  ///< of more than one rank; one axis at least
    std::size_t cut_ = 0;                ///< slower ones are in rows, faster in columns
    int run_ = 1;                        ///< so many places of this one are in a row
    int fast_ = 1;                       ///< ranks of a place of it
    int rows_ = 1;
    int columns_ = 1;
};

}  // namespace lockstep
