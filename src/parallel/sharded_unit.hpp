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
    /// Shards each parameter by its rows, padded to a multiple of n, as FSDP2 does. Sends
    /// one message per parameter, all messages in one group. Copies nothing.
    rows,
    /// Makes the same shards, but sends one message for the whole unit, as in FSDP2.
    /// Each parameter's rows are copied out of the gathered message, and gradients are
    /// copied into the scattered message.
    packed_rows,
    /// All parameters lie one after another in one buffer, and each rank has an equal
    /// range of it, as in FSDP1. Needs at most n - 1 elements of padding per unit, and
    /// copies nothing; but shards begin and end anywhere in a parameter.
    flat
};

/// Parameters that are gathered and released together, and this rank's shards of them.
class ShardedUnit {
  public:
    struct Options {
        ShardBy shard_by = ShardBy::rows;
        std::optional<DType> reduce_in;  ///< by default the parameters' own type
        Device* home = nullptr;          ///< where the shards live; if null, the device
    };

    /// Makes the shards, from the parameters' values or from their initial numbers, and
    /// releases the parameters' values and gradients.
    ShardedUnit(Device& device, Communicator& line, std::vector<Parameter*> parameters,
                const Options& options);

    const std::vector<Parameter*>& parameters() const { return parameters_; }
    std::vector<Parameter*> shards() const;

    /// If shards live on the host, starts to copy this rank's shards to the device.
    void fetch();
    /// Starts the all-gather of values, unless it was started. The program first waits
    /// for the copy that fetch() started.
    void gather();
    /// Makes the device wait for the values. The values then stay until close().
    void open();
    /// Releases the values, unless another use still has them open, or `keep` is true.
    void close(bool keep);
    /// Releases values that are gathered or still arriving, even if they were kept.
    void drop();

    /// Makes gradients, as zeros, unless they exist.
    void make_gradients();
    bool has_gradients() const { return has_gradients_; }
    /// Starts to sum the gradients into the shards; releases the gradients after the sum.
    void reduce(bool adds);
    ScatteredSum& sum() { return sum_; }

  private:
    /// Parameters of one type, one after another in a tensor that the ranks shard.
    struct Piece {
        std::vector<Parameter*> parameters;
        std::int64_t share = 0;   ///< elements of each rank
        std::int64_t offset = 0;  ///< in the shares of all pieces
        std::vector<std::unique_ptr<Parameter>> shards{};
        Tensor values{};     ///< whole, padded; empty if released
        Tensor gradients{};  ///< the same
    };
    void cut(const Options& options);
    void make_shards(const Options& options);
    void fill(const Piece& piece);
    void move_to(const Tensor& place, const Tensor& values);
    Tensor share_of(const Tensor& shares, const Piece& piece) const {
        return shares.slice(piece.offset, piece.share);
    }
    /// Makes `member` of each parameter a view of `whole`; empty if `whole` is empty.
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
    Tensor fetched_;    ///< values on the device, if shards live on the host
    std::optional<Work> fetch_;
    std::optional<Work> gather_;
    Tensor message_;  ///< the gathered message, if packed
    bool is_whole_ = false;
    bool has_gradients_ = false;
    int open_ = 0;
    ScatteredSum sum_;
};

}  // namespace lockstep
