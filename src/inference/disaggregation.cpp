#include "src/inference/disaggregation.hpp"

#include <array>
#include <utility>

#include "src/core/require.hpp"
#include "src/inference/decision.hpp"

namespace lockstep {

namespace {

/// Returns the row of each of these tokens, (tokens, 1), if all pages of a layer are seen
/// as one matrix, page after page.
HostTensor rows_on_pages(const PagedTokens& tokens, std::int64_t page_rows) {
    std::vector<std::int32_t> rows;
    for (const PagedSequence& sequence : tokens.sequences)
        for (std::int64_t token = sequence.first; token < sequence.tokens(); ++token) {
            const auto page = sequence.pages[static_cast<std::size_t>(token / page_rows)];
            const std::int64_t row = page * page_rows + token % page_rows;
            require(row <= INT32_MAX, "a cache of more than {} rows", INT32_MAX);
            rows.push_back(static_cast<std::int32_t>(row));
        }
    const auto count = static_cast<std::int64_t>(rows.size());
    return HostTensor::of<std::int32_t>({count, 1}, rows);
}

void require_pages(const KeyValueCache& cache, const PagedTokens& tokens, SourceLine at) {
    require(!cache.layers().empty(), at,
            "the cache has no layers yet; make a model with it first");
    for (const PagedSequence& sequence : tokens.sequences) {
        const auto held =
            static_cast<std::int64_t>(sequence.pages.size()) * cache.sizes().page_rows;
        require(sequence.first >= 0 && sequence.count >= 0 && sequence.tokens() <= held,
                at, "tokens {} to {} do not fit into the sequence's {} pages of {} rows",
                sequence.first, sequence.tokens(), sequence.pages.size(),
                cache.sizes().page_rows);
        for (const std::int32_t page : sequence.pages)
            require(page >= 0 && page < cache.sizes().pages, at,
                    "there is no page {}: the cache has {} pages", page,
                    cache.sizes().pages);
    }
}

}  // namespace

Tensor packed_tokens(const KeyValueCache& cache, const PagedTokens& tokens,
                     SourceLine at) {
    require_pages(cache, tokens, at);
    Device& device = cache.device();
    const MemoryScope scope(device, MemoryCategory::communication);
    const Tensor rows = device.upload(rows_on_pages(tokens, cache.sizes().page_rows), at);
    Tensor packed = cache.empty_tokens(tokens.rows(), at);
    std::int64_t first = 0;
    for (const Tensor& pages : cache.layers()) {
        const std::int64_t columns = pages.shape().columns();
        const Tensor flat = pages.reshaped({pages.elements() / columns, columns});
        device.take_rows(packed.rows(first, tokens.rows()), flat, rows, at);
        first += tokens.rows();
    }
    return packed;
}

void unpack_tokens(const KeyValueCache& cache, const PagedTokens& tokens,
                   const Tensor& packed, SourceLine at) {
    require_pages(cache, tokens, at);
    const auto shared = std::make_shared<const PagedTokens>(tokens);
    std::int64_t first = 0;
    for (const Tensor& pages : cache.layers()) {
        const Tensor rows = packed.rows(first, tokens.rows());
        cache.device().store_pages(
            pages, rows.reshaped({tokens.rows(), 1, pages.shape().columns()}), 0, shared,
            at);
        first += tokens.rows();
    }
}

std::vector<Request> first_tokens_of(std::vector<Request> requests) {
    for (Request& request : requests)
        request.output = 1;
    return requests;
}

PrefillSender::PrefillSender(const KeyValueCache& cache, Communicator& pair, int to,
                             int most)
    : cache_(cache), pair_(pair), to_(to), most_(static_cast<std::size_t>(most)) {
    require(most > 0, "{} prompts may wait to be taken; 1 or more are expected", most);
}

// lesson: prefill-sender
void PrefillSender::send(const Pass& pass, const std::vector<std::int32_t>& tokens,
                         SourceLine at) {
    Device& device = cache_.device();
    std::int64_t end = 0;
    std::size_t taken = 0;
    for (const PagedSequence& sequence : pass.tokens.sequences) {
        end += sequence.count;
        // A prompt is complete if the logits of its last row are wanted.
        if (taken == pass.wanted.size() || pass.wanted[taken] != end - 1) continue;
        if (sent_.size() == most_) {
            sent_.front().work.wait(at);
            sent_.pop_front();
        }
        const Tensor packed =
            packed_tokens(cache_, {{{0, sequence.tokens(), sequence.pages}}}, at);
        const MemoryScope scope(device, MemoryCategory::communication);
        const Tensor token = device.upload(
            HostTensor::of<std::int32_t>({1}, std::vector{tokens.at(taken++)}), at);
        sent_.push_back(
            {packed, token,
             pair_.group(at).send(packed, to_, at).send(token, to_, at).start(at)});
    }
}
// lesson: end

void PrefillSender::finish(SourceLine at) {
    for (Sent& each : sent_)
        each.work.wait(at);
    sent_.clear();
}

PrefilledArrivals::PrefilledArrivals(const KeyValueCache& cache, Communicator& pair,
                                     int from, Communicator* alike,
                                     std::span<const Request> requests, SourceLine at)
    : cache_(cache),
      device_(cache.device()),
      pair_(pair),
      from_(from),
      alike_(alike),
      left_(requests),
      at_(at) {
    expect_next();
}

// lesson: prefilled-arrivals
/// Starts to receive the next request's keys, values and first token; does not wait.
void PrefilledArrivals::expect_next() {
    if (left_.empty()) return;
    const MemoryScope scope(device_, MemoryCategory::communication);
    packed_ =
        cache_.empty_tokens(static_cast<std::int64_t>(left_.front().prompt.size()), at_);
    token_ = device_.empty({1}, DType::i32, at_);
    arrival_ =
        pair_.group(at_).recv(packed_, from_, at_).recv(token_, from_, at_).start(at_);
}

bool PrefilledArrivals::go_on(bool has_work) {
    if (has_work) return true;
    if (left_.empty()) return false;
    if (arrival_) arrival_->wait(at_);
    arrival_.reset();
    return true;
}

std::vector<Arrived> PrefilledArrivals::take_in(Batcher& batcher) {
    if (left_.empty() || !has_come()) return {};
    const Request& request = left_.front();
    const HostTensor known = device_.download(token_, at_);
    const auto sequence = batcher.join(
        request, device_.has_numbers() ? known.values<std::int32_t>()[0] : 0);
    if (!sequence) return {};
    unpack_tokens(cache_, {{*sequence}}, packed_, at_);
    left_ = left_.subspan(1);
    expect_next();
    return {{request.id, request.arrival, device_.now()}};
}
// lesson: end

/// Returns whether the next request has come; rank 0 decides this for all ranks.
bool PrefilledArrivals::has_come() {
    const bool asks = alike_ == nullptr || alike_->rank() == 0;
    if (arrival_ && asks) {
        const MemoryScope scope(device_, MemoryCategory::workspace);
        const Tensor here = device_.zeros({1}, DType::i32, at_);
        const Tensor there = device_.host(at_).empty({1}, DType::i32, at_);
        std::array works{std::move(*arrival_), device_.start_copy(there, here, at_)};
        if (wait_any(works, at_) == 0) {
            arrival_.reset();
            works[1].wait(at_);
        } else {
            arrival_ = std::move(works[0]);
        }
    }
    const bool has =
        alike_ ? decided_by_first(device_, *alike_, !arrival_, at_) : !arrival_;
    if (has && arrival_) {
        arrival_->wait(at_);
        arrival_.reset();
    }
    return has;
}

}  // namespace lockstep
