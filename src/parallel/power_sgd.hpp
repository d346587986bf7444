#pragma once

#include <cstdint>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/parallel/train_step.hpp"

namespace lockstep {

struct PowerSgdOptions {
    std::int64_t r = 2;      ///< columns of the factors: more are slower, and lose less
    std::uint64_t seed = 0;  ///< of what the factors begin as; the same on all ranks
};

/// PowerSGD: data parallelism that sends, for the gradient of a matrix (n, m), two thin
/// factors P (n, r) and Q (m, r), whose product comes near it; what is left out is added
/// to the next step's gradient (Vogels, Karimireddy and Jaggi 2019, 1905.13727,
/// algorithms 1 and 2).
///
///     M = gradient + error            of each rank
///     P = sum over ranks of M Q       Q is that of the step before
///     P's columns are made orthonormal
///     Q = sum over ranks of M^T P
///     error = M - P (M^T P)^T         of each rank
///     gradient = P Q^T                on all ranks the same bits
///
/// The gradient becomes P P^T times the sum of all M: its projection onto the r
/// directions that P spans. A sum of rank r or less comes through as it is. One that does
/// not change comes nearer to the best approximation of rank r with every step, since
/// each goes on with the last Q: it is one step of a power iteration. All of it is linear
/// in M but for P, which has the sum only, so that n ranks do what one would with all
/// terms. What has been applied so far, and the errors of all ranks, add up to all
/// gradients, but for the rounding of P Q^T if gradients are bf16.
///
/// With k ranks a step sends 2(k-1)/k times r (n + m) elements of each matrix, in two
/// all-reduces: that of all P in one buffer, then that of all Q in another. A matrix of
/// which that is not less than n m, as with every vector, goes as it is, with all others
/// of these, in a third. Factors and errors have the type that the parameter is computed
/// in: f32 for bf16. A matrix costs 8 n m r flops, besides making P orthonormal, and is
/// read or written ten times, partly while Q travels: this pays if memory is more than
/// five times as fast as the network, as it is between nodes. A parameter whose gradient
/// is partial along other lines as well is added up along these at the end.
///
/// Memory: the error is as large as the matrix, and Q is kept, too. Both are state that
/// steps hand on, as momentum is, and so count as optimizer; no checkpoint has them. P
/// and this rank's part of Q count as communication.
///
/// Differs: ranks' terms have their weights already (MicroBatch::weight), so sums stand
/// where the paper has means. Errors are the paper's, of a rank's own M and own part of
/// Q; the authors' program, as PyTorch's hook, takes P Q^T of all ranks from each rank's
/// M, which saves a product. The errors' sum is the same, but then each gathers all that
/// ever set its rank's gradients apart from the others'; here what lies along P is taken
/// out of that, too, and no error is larger than its M. If a column of Q has become zero,
/// as the gradient had fewer directions in a step, it gets random numbers again; there it
/// stays zero. Any optimizer that update() is given stands for the paper's.
class PowerSgd : public GradientSync {
  public:
    /// Throws UsageError if the parameters are not known to be partial along `replicas`,
    /// are of several types, or if r is less than 1.
    PowerSgd(Device& device, Communicator& replicas, std::vector<Parameter*> parameters,
             PowerSgdOptions options = {});

    void finish() override;
    const char* unsaved() const override { return "the errors that it feeds back"; }

    /// A matrix that is sent as factors.
    struct Matrix {
        Parameter* parameter;
        Tensor error{};  ///< (n, m)
        Tensor p{};      ///< (n, r)
        Tensor q{};      ///< (m, r)
        Tensor own_q{};  ///< (m, r), this rank's part
    };
    /// All of them; error and q are for records and checkpoints.
    const std::vector<Matrix>& matrices() const { return matrices_; }

  private:
    void make_factors();
    void exchange_factors();
    void revive(const Matrix& matrix);
    Tensor gradient_of(const Matrix& matrix);
    Tensor product(const Matrix& matrix, const Tensor& q);

    Device& device_;
    Communicator& replicas_;
    PowerSgdOptions options_;
    std::vector<Matrix> matrices_;
    Tensor p_;      ///< all matrices', one behind the other
    Tensor q_;      ///< as p_
    Tensor own_q_;  ///< as p_
    Tensor whole_;  ///< all gradients that are sent as they are
};

}  // namespace lockstep
