#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/nn/parameter.hpp"
#include "src/parallel/scattered_sum.hpp"

namespace lockstep {

/// How a unit's parameters are cut into shards.
enum class ShardBy : std::uint8_t {
    /// Each parameter by its rows, padded to a multiple of n, as FSDP2 has them; a
    /// message
    /// for each, all in one group. Nothing is copied.
    rows,
    /// The same shards; all of a unit are one message. Each parameter's rows are copied
    /// out of what was gathered, and gradients are copied into what is scattered: that is
    /// what FSDP2 does.
    packed_rows,
    /// All parameters lie one behind the other in one buffer, of which each rank has an
    /// equal range, as FSDP1 has them. At most n - 1 elements of padding a unit, and
    /// nothing is copied; but shards begin and end anywhere in a parameter.
    flat
};

/// Parameters that are gathered and let go of together, and this rank's shards of them.
class ShardedUnit {
  public:
    struct Options {
        ShardBy by = ShardBy::rows;
        std::optional<DType> reduce_in;  ///< the parameters' own by default
        Device* home = nullptr;          ///< of the shards; null: the device
    };

    /// Makes the shards, of the parameters' values or as these begin, and lets go of the
    /// parameters' values and gradients.
    ShardedUnit(Device& device, Communicator& line, std::vector<Parameter*> parameters,
                const Options& options);

    const std::vector<Parameter*>& parameters() const { return parameters_; }
    std::vector<Parameter*> shards() const;

    /// If shards live on the host: starts the copy of this rank's to the device.
    void fetch();
    /// Starts the all-gather of values, if it was not; the program waits for what fetch()
    /// copies.
    void gather();
    /// The device goes on when the values are there, and they stay until close().
    void open();
    /// Lets go of them, unless they are open elsewhere, or are to be kept.
    void close(bool keep);
    /// Lets go of values that are gathered or on their way, whoever keeps them.
    void drop();

    /// Makes gradients, zeros, if they are not there.
    void make_gradients();
    bool has_gradients() const { return has_gradients_; }
    /// Sends them on their way to the shards, and lets go of them when they are there.
    void reduce(bool adds);
    ScatteredSum& sum() { return sum_; }

  private:
    /// Parameters of one type, one behind the other in a whole that ranks share out.
    struct Piece {
        std::vector<Parameter*> parameters;
        std::int64_t share = 0;   ///< elements of each rank
        std::int64_t offset = 0;  ///< in the shares of all pieces
        std::vector<std::unique_ptr<Parameter>> shards{};
        Tensor values{};     ///< whole, padded; none if they are not there
        Tensor gradients{};  ///< the same
    };
    void cut(const Options& options);
    void make_shards(const Options& options);
    void fill(const Piece& piece);
    void move_to(const Tensor& place, const Tensor& values);
    Tensor share_of(const Tensor& shares, const Piece& piece) const {
        return shares.slice(piece.offset, piece.share);
    }
    /// Makes one of the parameters' tensors views of their wholes, or none.
    void show(const Piece& piece, const Tensor& whole, Tensor Parameter::*member);
    void unpack();
    Tensor packed_gradients();

    Device& device_;
    Communicator& line_;
    std::vector<Parameter*> parameters_;
    bool packed_;
    DType dtype_;
    std::vector<Piece> pieces_;
    Tensor values_;     ///< this rank's shares of all pieces
    Tensor gradients_;  ///< the same
    Tensor fetched_;    ///< values on the device, if they live on the host
    std::optional<Work> fetch_;
    std::optional<Work> gather_;
    Tensor message_;  ///< what is gathered, if it is packed
    bool is_whole_ = false;
    bool has_gradients_ = false;
    int open_ = 0;
    ScatteredSum sum_;
};

}  // namespace lockstep
