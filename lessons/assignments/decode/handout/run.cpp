// Shows your generate_shared on four virtual devices, as a timeline. Then shows the
// passes that your batcher plans for some requests.

#include <cstdio>

#include <fmt/format.h>

#include "adapters.hpp"
#include "sim/cluster.hpp"
#include "src/course/not_written.hpp"
#include "src/course/show_run.hpp"

using namespace lockstep;

namespace {

constexpr Sizes kSizes{.vocabulary = 128,
                       .context = 64,
                       .layers = 2,
                       .hidden = 64,
                       .heads = 8,
                       .key_heads = 4,
                       .width = 8,
                       .inner = 256};

int show_generating() {
    sim::ClusterOptions options;
    options.ranks = 4;
    options.spec = load_cluster("classroom");
    options.check = sim::CheckLevel::full;
    options.trace = true;
    return show_run(
        *sim::make_cluster(options),
        [](Rank& rank) {
            const Gpt gpt = given::random_gpt(rank.device(), kSizes, 1);
            std::vector<Prompt> prompts;
            for (const std::int64_t length : {20, 3, 9})
                prompts.push_back(
                    given::random_prompt(kSizes, 1, std::ssize(prompts), length, 4));
            adapters::generate_shared(rank, gpt, prompts, 8);
        },
        "decode");
}

constexpr Rules kRules{.rows = 12, .sequences = 4, .pages = 8, .page_rows = 4};
constexpr Request kRequests[] = {{0, 7, 6}, {1, 16, 4}, {2, 2, 9},
                                 {3, 4, 5}, {4, 10, 3}, {5, 3, 4}};

/// Prints a line for each pass, with the number of rows of each request.
void show_passes() {
    const std::unique_ptr<Batching> batcher = adapters::make_batcher(kRules);
    fmt::print(
        "\nPasses of up to {} rows and {} requests, {} pages of {} tokens: rows of "
        "each request\n\n pass ",
        kRules.rows, kRules.sequences, kRules.pages, kRules.page_rows);
    for (const Request& request : kRequests) {
        batcher->add(request);
        fmt::print("{:>4}", request.id);
    }
    fmt::print("   rows  pages\n");
    constexpr int kMostPasses = 60;
    for (int number = 0; number < kMostPasses; ++number) {
        const std::vector<Share> pass = batcher->next();
        if (pass.empty()) break;
        std::int64_t rows[std::size(kRequests)] = {}, all = 0, pages = 0;
        for (const Share& share : pass) {
            rows[share.request] += share.tokens.count;
            all += share.tokens.count;
            pages += std::ssize(share.tokens.pages);
        }
        fmt::print("{:>5} ", number);
        for (const std::int64_t count : rows)
            fmt::print("{:>4}", count == 0 ? "." : fmt::format("{}", count));
        fmt::print("{:>7}{:>7}\n", all, pages);
    }
}

}  // namespace

int main() {
    const int status = show_generating();
    try {
        show_passes();
    } catch (const NotWritten& missing) {
        fmt::print(stderr, "not written yet: {}\n", missing.what());
        return 1;
    }
    return status;
}
