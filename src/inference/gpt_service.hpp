#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "src/comm/mesh.hpp"
#include "src/comm/rank.hpp"
#include "src/inference/server.hpp"
#include "src/parallel/tensor_parallel.hpp"

namespace lockstep {

/// Says how a GPT that answers requests is distributed over a mesh. The axes have these
/// names, and each shards something. Axes may be in any order, the slowest first; a
/// missing axis has one rank:
///
///     dp   requests              tp   heads and columns
///     ep   requests, and experts
struct ServiceOptions {
    std::vector<MeshShape::Axis> axes;
    /// If true, a second mesh of the same size computes the prompts. Each of its devices
    /// sends keys and values to the device at the same place of the mesh (PrefillSender).
    bool apart = false;

    CacheSizes cache{};
    BatchRules rules{};
    bool reuse = true;  ///< prefix caching
    /// If true, a row's bits do not depend on the other rows of its pass (RowByRow).
    bool row_by_row = false;
    DType dtype = DType::bf16;
    std::uint64_t seed = 0;
};

/// How a GPT that answers requests is distributed over a mesh. Throws UsageError for an
/// unknown axis, and if the options do not fit the GPT or each other.
class ServicePlan {
  public:
    ServicePlan(const GptSizes& sizes, const ServiceOptions& options);

    const GptSizes& sizes() const { return sizes_; }
    const ServiceOptions& options() const { return options_; }
    /// Axes "side" (0 computes prompts), "dp", "ep" and "tp": first the axes that were
    /// not given, then the given axes.
    const MeshShape& shape() const { return shape_; }
    int size(const std::string& axis) const { return shape_.size(axis); }
    /// The number of replicas; replicas get requests in turn.
    int replicas() const { return size("dp") * size("ep"); }

  private:
    GptSizes sizes_;
    ServiceOptions options_;
    MeshShape shape_;
};

/// A pass that a device computed.
struct ServedPass {
    Picoseconds start = 0, end = 0;
    std::int64_t pages = 0;  ///< pages that sequences have

    struct Piece {
        std::int64_t request = 0;
        std::int64_t first = 0;  ///< its first row's place in the sequence
        std::int64_t rows = 0;
        bool wanted = false;  ///< whether its last row yields a token
    };
    std::vector<Piece> pieces;
};

/// One device's part of a GPT on a mesh, and how it answers requests. It combines
/// tensor parallelism, experts and the cache in one GptKit, and calls serve().
///
///     const ServicePlan plan(sizes, {.axes = {{"dp", 2}, {"tp", 4}}, .cache = pages});
///
///     GptService service(rank, plan);
///     const std::vector<Served> served = service.serve(requests);
class GptService {
  public:
    /// Every rank of the world makes a GptService of the same plan. The plan must stay.
    /// Throws UsageError if the world does not have the mesh's size, or if the GPT cannot
    /// be sharded over the mesh.
    GptService(Rank& rank, const ServicePlan& plan, SourceLine at = SourceLine::here());

    /// Answers the requests that this rank's replica gets. All ranks pass the same
    /// requests, in the order of their arrivals. Throws UsageError as serve() does. On
    /// devices that compute prompts, an answer has only the first token.
    std::vector<Served> serve(const std::vector<Request>& requests);

    /// The replica whose requests this rank answers.
    int replica() const {
        return mesh_.coordinate("dp") * mesh_.size("ep") + mesh_.coordinate("ep");
    }
    /// True on one rank of each replica: the first rank that generates tokens.
    bool speaks() const { return generates() && mesh_.coordinate("tp") == 0; }
    bool generates() const { return mesh_.coordinate("side") == mesh_.size("side") - 1; }

    /// This rank's part of the model, so that weights can be loaded.
    Module& model() { return *gpt_; }

    /// The passes that this rank has computed.
    const std::vector<ServedPass>& passes() const { return passes_; }

  private:
    std::vector<std::int32_t> compute(const Pass& pass,
                                      const std::vector<Wanted>& wanted);

    Device& device_;
    const ServicePlan& plan_;
    Mesh mesh_;
    TensorParallel tensor_;
    KeyValueCache cache_;
    PagePool pool_;
    Batcher batcher_;
    std::unique_ptr<Module> gpt_;
    std::vector<ServedPass> passes_;
};

}  // namespace lockstep
