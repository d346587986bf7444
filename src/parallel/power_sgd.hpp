#pragma once

#include <cstdint>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/parallel/train_step.hpp"

namespace lockstep {

struct PowerSgdOptions {
    std::int64_t r = 2;      ///< columns of the factors; a large r is slow but loses less
    std::uint64_t seed = 0;  ///< for the initial factors; the same on all ranks
};

/// PowerSGD: data parallelism that approximates the gradient of a matrix (n, m) by the
/// product of two thin factors P (n, r) and Q (m, r), and sends only the factors. The
/// error of the approximation is added to the next step's gradient (Vogels, Karimireddy
/// and Jaggi 2019, 1905.13727, algorithms 1 and 2).
///
///     M = gradient + error            on each rank
///     P = sum over ranks of M Q       Q comes from the previous step
///     P's columns are made orthonormal
///     Q = sum over ranks of M^T P
///     error = M - P (M^T P)^T         on each rank
///     gradient = P Q^T                the same bits on all ranks
///
/// The gradient becomes P P^T times the sum of all M: the projection of the sum onto the
/// r directions that P spans. A sum of rank r or less arrives unchanged. Each step starts
/// from the previous step's Q and is one step of a power iteration. So if the sum stays
/// the same, the steps approach the sum's best approximation of rank r. Everything is
/// linear in M except P, which depends only on the sum. So several ranks get the same
/// result as one rank with all terms. The applied gradients plus the errors of all ranks
/// are the sum of all gradients, except for the rounding of P Q^T if gradients are bf16.
///
/// With k ranks a step sends 2(k-1)/k times r (n + m) elements per matrix, in two
/// all-reduces: one for all P in one buffer, then one for all Q in another. A third
/// all-reduce sends the gradients that have no factors: every vector, and every matrix
/// with r (n + m) >= n m. Factors and errors have the type in which the parameter is
/// computed: f32 for bf16. A matrix costs 8 n m r flops, plus the flops that make P
/// orthonormal. Matrices of n m elements are read or written ten times, partly while Q is
/// sent. PowerSGD pays off if memory is more than five times as fast as the network,
/// which is true between nodes. If a parameter's gradient is also partial along other
/// lines, it is summed along these lines at the end.
///
/// Memory: the error, which is as large as the matrix, and Q are kept between steps, like
/// momentum. The ledger counts both as optimizer state; a checkpoint does not save them.
/// P and this rank's part of Q are counted as communication.
///
/// Differs: ranks' terms have their weights already (MicroBatch::weight), so sums replace
/// the paper's means. Errors are as in the paper: each rank uses its own M and its own
/// part of Q. The authors' program, like PyTorch's hook, subtracts the P Q^T of all ranks
/// from each rank's M, which saves a product. The sum of the errors is the same, but each
/// error then keeps every difference between its rank's gradients and the other ranks'
/// gradients. Here the part of this difference along P is removed, and no error is larger
/// than its M. If the sum of all M has a rank below r in a step, a column of Q becomes
/// zero. Here the column gets random numbers again; in the authors' program it stays
/// zero. Any optimizer can be used, not only the paper's.
class PowerSgd : public GradientSync {
  public:
    /// Throws UsageError if the parameters are not known to be partial along `replicas`
    /// or have several types, or if r is less than 1.
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
    /// All matrices that are sent as factors.
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
    Tensor p_;      ///< of all matrices, one after another
    Tensor q_;      ///< as p_
    Tensor own_q_;  ///< as p_
    Tensor whole_;  ///< all gradients that are sent without factors
};

}  // namespace lockstep
