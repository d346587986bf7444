#include "src/inference/batcher.hpp"

#include <algorithm>
#include <utility>

#include "src/core/require.hpp"

namespace lockstep {

Batcher::Batcher(PagePool& pool, const BatchRules& rules) : pool_(pool), rules_(rules) {
    require(rules.most_sequences > 0 && rules.most_rows > 0,
            "passes of up to {} sequences and {} rows; both must be positive",
            rules.most_sequences, rules.most_rows);
}

void Batcher::add(Request request) {
    require_possible(request);
    ids_.insert(request.id);
    std::vector<std::int32_t> ids = request.prompt;
    waiting_.push_back({std::move(request), std::move(ids), {}});
}

std::optional<PagedSequence> Batcher::join(const Request& request, std::int32_t first) {
    require(!under_way_, "request {} joins while a pass is under way", request.id);
    require_possible(request);
    Sequence sequence{request, request.prompt, {}};
    if (!waiting_.empty() || running() == rules_.most_sequences ||
        !pool_.grow(sequence.pages, sequence.prompt()))
        return std::nullopt;
    PagedSequence computed{0, sequence.prompt(), sequence.pages.pages};
    ids_.insert(request.id);
    sequence.ids.push_back(first);
    running_.push_back(std::move(sequence));
    answer_complete();
    return computed;
}

void Batcher::require_possible(const Request& request) {
    const auto prompt = static_cast<std::int64_t>(request.prompt.size());
    require(
        prompt > 0 && request.output > 0,
        "request {} has a prompt of {} tokens and asks for {}; both must be at least 1",
        request.id, prompt, request.output);
    request.sampling.require_sound();
    // The last generated token is not passed through the model, so it needs no room.
    const std::int64_t room = pool_.pages() * pool_.page_rows();
    require(request.output - 1 <= room - prompt,
            "request {} has a prompt of {} tokens and asks for {}; the cache has room "
            "for {} tokens ({} pages of {})",
            request.id, prompt, request.output, room, pool_.pages(), pool_.page_rows());
    require(!ids_.contains(request.id), "two requests under way have id {}", request.id);
}

Pass Batcher::next() {
    require(!under_way_, "next() was called before take() for the last pass");
    rows_ = 0;
    has_prompt_ = false;
    plan_decodes();
    plan_prompts();
    admit();

    Pass pass;
    pass.page_rows = pool_.page_rows();
    for (Sequence& sequence : running_) {
        if (sequence.planned == 0) continue;
        const std::int64_t first = sequence.pages.tokens - sequence.planned;
        pass.tokens.sequences.push_back({first, sequence.planned, sequence.pages.pages});
        pass.requests.push_back(sequence.request.id);
        pass.ids.insert(pass.ids.end(), sequence.ids.begin() + first,
                        sequence.ids.begin() + sequence.pages.tokens);
        if (sequence.missing() == 0)
            pass.wanted.push_back(static_cast<std::int32_t>(pass.ids.size()) - 1);
    }
    under_way_ = true;
    return pass;
}

/// Plans a row for each sequence that decodes, the oldest first. If no page is left, the
/// youngest sequence is preempted.
void Batcher::plan_decodes() {
    for (std::size_t i = 0; i < running_.size() && rows_left() > 0;) {
        if (!running_[i].decodes() || plan(running_[i], 1))
            ++i;
        else
            preempt_youngest();
    }
}

/// Plans rows of the prompts that are under way; preempts as plan_decodes() does.
void Batcher::plan_prompts() {
    for (std::size_t i = 0; i < running_.size();) {
        Sequence& sequence = running_[i];
        const std::int64_t rows = rows_of_prompt(sequence);
        if (sequence.planned > 0 || sequence.decodes() || rows == 0 ||
            plan(sequence, rows))
            ++i;
        else
            preempt_youngest();
    }
}

/// Begins waiting requests as long as there is room for all of their tokens.
void Batcher::admit() {
    if (running_.empty()) may_join_ = std::min(waiting(), rules_.most_sequences);
    while ((rules_.continuous || may_join_ > 0) && !waiting_.empty() &&
           running() < rules_.most_sequences) {
        Sequence& first = waiting_.front();
        const std::int64_t reused = pool_.find(first.pages, first.ids);
        const std::int64_t pages = pool_.pages_for(first.tokens()) -
                                   static_cast<std::int64_t>(first.pages.pages.size());
        const std::int64_t rows = rows_of_prompt(first);
        if (rows == 0 || pages > pool_.free() || !plan(first, rows)) {
            pool_.release(first.pages);
            return;
        }
        if (first.preemptions == 0) first.reused = reused;
        running_.push_back(std::move(first));
        waiting_.pop_front();
        --may_join_;
    }
}

/// Adds the sequence's next rows to the pass. Returns false if there are no pages for
/// them.
bool Batcher::plan(Sequence& sequence, std::int64_t rows) {
    const bool decodes = sequence.decodes();
    if (!pool_.grow(sequence.pages, sequence.pages.tokens + rows)) return false;
    has_prompt_ |= !decodes;
    sequence.planned = rows;
    rows_ += rows;
    return true;
}

/// Returns how many of the prompt's rows fit into the pass. If prompts are not cut,
/// returns all rows if they fit or if no other prompt is in the pass, and otherwise 0.
std::int64_t Batcher::rows_of_prompt(const Sequence& sequence) const {
    const std::int64_t missing = sequence.missing();
    if (rules_.pieces) return std::clamp<std::int64_t>(rows_left(), 0, missing);
    return missing <= rows_left() || !has_prompt_ ? missing : 0;
}

/// If the planned pass already has rows of the youngest sequence, removes them.
void Batcher::preempt_youngest() {
    Sequence youngest = std::move(running_.back());
    running_.pop_back();
    rows_ -= std::exchange(youngest.planned, 0);
    pool_.release(youngest.pages);
    ++youngest.preemptions;
    ++may_join_;
    waiting_.push_front(std::move(youngest));
}

std::vector<Wanted> Batcher::wanted() const {
    std::vector<Wanted> wanted;
    for (const Sequence& sequence : running_)
        if (sequence.planned > 0 && sequence.missing() == 0)
            wanted.push_back(
                {sequence.request.sampling, sequence.tokens(), sequence.request.id});
    return wanted;
}

void Batcher::take(const std::vector<std::int32_t>& tokens) {
    require(under_way_, "take() got {} tokens, but no pass is under way", tokens.size());
    const std::size_t expected = wanted().size();
    require(tokens.size() == expected, "take() got {} tokens, but the pass wants {}",
            tokens.size(), expected);
    under_way_ = false;
    std::size_t taken = 0;
    for (Sequence& sequence : running_) {
        if (std::exchange(sequence.planned, 0) == 0) continue;
        pool_.computed(sequence.pages, sequence.ids);
        if (sequence.missing() == 0) sequence.ids.push_back(tokens[taken++]);
    }
    answer_complete();
}

/// Ends the sequences that have all of their tokens.
void Batcher::answer_complete() {
    for (auto it = running_.begin(); it != running_.end();) {
        if (it->tokens() < it->prompt() + it->request.output) {
            ++it;
            continue;
        }
        answer(*it);
        it = running_.erase(it);
    }
}

/// Releases the sequence's pages, and adds its generated tokens to the answers.
void Batcher::answer(Sequence& sequence) {
    pool_.release(sequence.pages);
    ids_.erase(sequence.request.id);
    answers_.push_back({sequence.request.id,
                        {sequence.ids.begin() + sequence.prompt(), sequence.ids.end()},
                        sequence.preemptions,
                        sequence.reused});
}

bool Batcher::drop(std::int64_t id) {
    require(!under_way_, "request {} is dropped while a pass is under way", id);
    for (auto* queue : {&running_, &waiting_}) {
        const auto found = std::ranges::find(
            *queue, id, [](const Sequence& sequence) { return sequence.request.id; });
        if (found == queue->end()) continue;
        answer(*found);
        queue->erase(found);
        return true;
    }
    return false;
}

std::vector<Answer> Batcher::answers() {
    return std::exchange(answers_, {});
}

}  // namespace lockstep
