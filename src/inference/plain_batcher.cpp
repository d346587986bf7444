#include "src/inference/plain_batcher.hpp"

#include <numeric>
#include <utility>

#include "src/core/require.hpp"

namespace lockstep {

PlainBatcher::PlainBatcher(const CacheSizes& cache, std::int64_t most_sequences)
    : cache_(cache), most_sequences_(static_cast<std::size_t>(most_sequences)) {
    require(cache.pages > 0 && cache.page_rows > 0 && most_sequences > 0,
            "{} pages of {} rows for {} sequences at once; all three must be positive",
            cache.pages, cache.page_rows, most_sequences);
    free_.resize(static_cast<std::size_t>(cache.pages));
    std::iota(free_.begin(), free_.end(), 0);
}

/// The last generated token is not passed through the model, so it needs no room.
std::int64_t PlainBatcher::pages_for(const Request& request) const {
    const std::int64_t tokens = std::ssize(request.prompt) + request.output - 1;
    return (tokens + cache_.page_rows - 1) / cache_.page_rows;
}

void PlainBatcher::add(Request request) {
    const std::int64_t room = cache_.pages * cache_.page_rows;
    require(!request.prompt.empty() && request.output > 0 &&
                request.output - 1 <= room - std::ssize(request.prompt),
            "request {} has a prompt of {} tokens and asks for {}; both must be "
            "positive, and fit into {} pages of {}",
            request.id, request.prompt.size(), request.output, cache_.pages,
            cache_.page_rows);
    std::vector<std::int32_t> ids = request.prompt;
    waiting_.push_back({std::move(request), std::move(ids)});
}

Pass PlainBatcher::next() {
    while (!waiting_.empty() && running_.size() < most_sequences_ &&
           pages_for(waiting_.front().request) <= std::ssize(free_)) {
        Sequence& first = running_.emplace_back(std::move(waiting_.front()));
        waiting_.pop_front();
        const auto begin = free_.end() - pages_for(first.request);
        first.pages.assign(begin, free_.end());
        free_.erase(begin, free_.end());
    }
    Pass pass;
    for (Sequence& sequence : running_) {
        const std::int64_t rows = std::ssize(sequence.ids) - sequence.computed;
        pass.tokens.sequences.push_back({sequence.computed, rows, sequence.pages});
        pass.ids.insert(pass.ids.end(), sequence.ids.end() - rows, sequence.ids.end());
        pass.wanted.push_back(static_cast<std::int32_t>(pass.ids.size()) - 1);
        sequence.computed += rows;
    }
    return pass;
}

std::vector<Wanted> PlainBatcher::wanted() const {
    std::vector<Wanted> wanted;
    for (const Sequence& sequence : running_)
        wanted.push_back(
            {sequence.request.sampling, std::ssize(sequence.ids), sequence.request.id});
    return wanted;
}

void PlainBatcher::take(const std::vector<std::int32_t>& tokens) {
    require(tokens.size() == running_.size(), "{} tokens were taken; the pass expects {}",
            tokens.size(), running_.size());
    std::vector<Sequence> go_on;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        Sequence& sequence = running_[i];
        sequence.ids.push_back(tokens[i]);
        const auto prompt = std::ssize(sequence.request.prompt);
        if (std::ssize(sequence.ids) < prompt + sequence.request.output) {
            go_on.push_back(std::move(sequence));
            continue;
        }
        free_.insert(free_.end(), sequence.pages.begin(), sequence.pages.end());
        answers_.push_back(
            {sequence.request.id, {sequence.ids.begin() + prompt, sequence.ids.end()}});
    }
    running_ = std::move(go_on);
}

std::vector<Answer> PlainBatcher::answers() {
    return std::exchange(answers_, {});
}

}  // namespace lockstep
