#include "tests/inference/serving.hpp"

#include <algorithm>
#include <optional>

#include "src/inference/server.hpp"
#include "src/parallel/expert_parallel.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "tests/nn/fixture.hpp"

namespace lockstep::test {

namespace {

constexpr std::uint64_t kSeed = 7;

/// For each wanted token, copies a rank's columns of the logits into a whole row.
void keep_logits(Outcome& served, const std::vector<Wanted>& wanted,
                 const HostTensor& logits, std::int64_t rank, std::int64_t vocabulary) {
    const std::int64_t columns = logits.shape().columns();
    for (std::size_t row = 0; row < wanted.size(); ++row) {
        auto& kept = served.logits[wanted[row].request];
        if (rank == 0) kept.emplace_back(Shape{vocabulary}, logits.dtype());
        for (std::int64_t j = 0; j < columns && rank * columns + j < vocabulary; ++j)
            kept.back().set(rank * columns + j,
                            logits.at(static_cast<std::int64_t>(row) * columns + j));
    }
}

/// The server on one rank.
class Server {
  public:
    Server(const Serving& serving, Outcome& served, Rank& rank)
        : serving_(serving),
          served_(served),
          rank_(rank),
          tp_(rank.device(), rank.world()),
          cache_(rank.device(), serving.dtype, serving.cache),
          pool_(serving.cache.pages, serving.cache.page_rows, serving.reuse),
          batcher_(pool_, serving.rules),
          mesh_(rank.world(), {{"ep", rank.size()}}),
          gpt_(make_gpt({rank.device(), serving.dtype, kSeed, ""}, serving.sizes,
                        with_cache(kit(), cache_))) {
        for (const Request& request : serving.requests)
            if (!serving_.own_requests || request.id % serving_.ways == rank.index())
                requests_.push_back(request);
    }

    void run() {
        std::optional<RowByRow> scope;
        if (serving_.row_by_row) scope.emplace(rank_.device());
        if (serving_.own_requests) {
            run_own();
            return;
        }
        std::size_t added = 0;
        std::int64_t passes = 0;
        while (added < requests_.size() || !batcher_.idle()) {
            const auto due = [&] {
                return static_cast<std::int64_t>(added) * serving_.apart <= passes;
            };
            while (added < requests_.size() && (due() || batcher_.idle()))
                batcher_.add(requests_[added++]);
            const Pass next = batcher_.next();
            batcher_.take(pass(next, batcher_.wanted()));
            ++passes;
        }
        if (rank_.index() != 0) return;
        served_.passes = passes;
        served_.free_pages = pool_.free();
        for (Answer& answer : batcher_.answers()) {
            served_.preemptions += answer.preemptions;
            served_.answers[answer.id] = std::move(answer);
        }
    }

  private:
    bool shares_heads() const { return serving_.ways > 1 && !serving_.own_requests; }
    GptKit kit() {
        if (serving_.own_requests) return expert_parallel({}, mesh_, {"ep"});
        return shares_heads() ? copy_key_heads(tensor_parallel({}, tp_), tp_) : GptKit();
    }
    void run_own() {
        const auto served = lockstep::serve(
            rank_.device(), {.others = &rank_.world()}, batcher_, requests_,
            [this](const Pass& next, const auto& wanted) { return pass(next, wanted); });
        for (const Served& each : served)
            served_.answers[each.answer.id] = each.answer;
    }
    std::vector<std::int32_t> pass(const Pass& pass, const std::vector<Wanted>& wanted) {
        Device& device = rank_.device();
        served_.most_rows = std::max(served_.most_rows, pass.tokens.rows());
        const Tensor logits = gpt_->infer(cache_.begin(pass));
        const std::int64_t vocabulary = serving_.sizes.vocabulary;
        // The columns of other ranks are added after the run.
        if (serving_.numbers) mine_.push_back({wanted, device.peek(logits)});
        return shares_heads()
                   ? sample_rows(device, rank_.world(), logits, vocabulary, wanted)
                   : sample_rows(device, logits, wanted);
    }

  public:
    struct Kept {
        std::vector<Wanted> wanted;
        HostTensor logits;
    };
    std::vector<Kept> mine_;

  private:
    const Serving& serving_;
    Outcome& served_;
    Rank& rank_;
    TensorParallel tp_;
    KeyValueCache cache_;
    PagePool pool_;
    Batcher batcher_;
    Mesh mesh_;
    std::unique_ptr<Module> gpt_;
    std::vector<Request> requests_;
};

}  // namespace

Outcome serve(const Serving& serving) {
    Outcome served;
    std::vector<std::vector<Server::Kept>> kept(static_cast<std::size_t>(serving.ways));
    sim::ClusterOptions options;
    options.ranks = serving.ways;
    options.numbers = serving.numbers;
    options.spec = load_cluster("classroom");
    served.report = sim::make_cluster(std::move(options))->run([&](Rank& rank) {
        Server server(serving, served, rank);
        server.run();
        kept[static_cast<std::size_t>(rank.index())] = std::move(server.mine_);
    });
    for (std::size_t pass = 0; pass < kept[0].size(); ++pass)
        for (std::size_t rank = 0; rank < kept.size(); ++rank)
            keep_logits(served, kept[rank][pass].wanted, kept[rank][pass].logits,
                        serving.own_requests ? 0 : static_cast<std::int64_t>(rank),
                        serving.sizes.vocabulary);
    return served;
}

GptSizes small_sizes(bool llama, std::int64_t kv_heads) {
    GptSizes sizes{/*vocabulary=*/29, /*context=*/80, /*layers=*/2, {48, 8}};
    sizes.block.kv_heads = kv_heads;
    if (!llama) return sizes;
    sizes.block.inner = 80;
    sizes.block.norm = NormKind::rms_norm;
    sizes.block.mlp = MlpKind::swiglu;
    sizes.block.rotary_base = 10000;
    sizes.block.bias = false;
    sizes.tied = true;
    return sizes;
}

Request random_request(std::int64_t id, std::int64_t prompt, std::int64_t output,
                       std::int64_t vocabulary, const Sampling& sampling) {
    Request request{id, 0, {}, output, sampling};
    const RandomStream stream(static_cast<std::uint64_t>(id), "prompt");
    for (std::int64_t i = 0; i < prompt; ++i)
        request.prompt.push_back(
            static_cast<std::int32_t>(stream.uniform(static_cast<std::uint64_t>(i)) *
                                      static_cast<double>(vocabulary)));
    return request;
}

HostTensor whole_logits(const GptSizes& sizes, DType dtype,
                        const std::vector<std::int32_t>& ids) {
    nn_test::OneDevice one;
    Device& device = one.device;
    const auto gpt = make_gpt(one.init("", dtype), sizes);
    const auto count = static_cast<std::int64_t>(ids.size());
    const HostTensor logits = device.download(
        gpt->infer(device.upload(HostTensor::of<std::int32_t>({count, 1}, ids))));
    return logits.rows(count - 1, 1).reshaped({sizes.vocabulary});
}

}  // namespace lockstep::test
