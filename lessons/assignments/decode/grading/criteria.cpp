#include <functional>
#include <string>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/decode/grading/batching.hpp"
#include "lessons/assignments/decode/grading/generation.hpp"

namespace lockstep::lessons {

namespace {

using namespace decode;

Criterion of_generation(const char* id, const char* title, int points, Way way,
                        void (*judged)(Judge&, Way)) {
    const std::string lesson = way == Way::shared
                                   ? lesson_step("tensor-parallel-block", "block")
                                   : lesson_step("inference", "generate");
    return {id, title, points, lesson, [=](Judge& judge) { judged(judge, way); }};
}

}  // namespace

Assignment decode_assignment() {
    return {
        "decode",
        "Decoding",
        "Generate tokens with a cache of keys and values, on one device and on several "
        "that share out heads, and plan the passes of many requests.",
        {"decode.hpp", "cache.cpp", "shared.cpp", "batcher.cpp", "adapters.cpp"},
        {of_generation("a12.1-first", "what follows prompts of unequal lengths", 10,
                       Way::alone, judge_first),
         of_generation("a12.1-tokens", "token by token, what whole sequences give", 12,
                       Way::alone, judge_tokens),
         of_generation("a12.1-work", "each token is computed once", 8, Way::alone,
                       judge_work),
         of_generation("a12.1-cache", "the cache has the pages that tokens take", 6,
                       Way::alone, judge_cache),
         of_generation("a12.2-first", "every rank knows what follows prompts", 8,
                       Way::shared, judge_first),
         of_generation("a12.2-tokens", "every rank has one device's tokens", 6,
                       Way::shared, judge_tokens),
         of_generation("a12.2-work", "a rank computes its own heads and columns", 6,
                       Way::shared, judge_work),
         of_generation("a12.2-cache", "a rank stores the keys of its own heads", 5,
                       Way::shared, judge_cache),
         {"a12.2-sums", "two all-reduces a layer", 5,
          lesson_step("tensor-parallel-block", "block"), judge_sums},
         {"a12.3-tokens", "each request gets the tokens that it gets alone", 10,
          lesson_step("inference", "batching"), judge_batched_tokens},
         {"a12.3-limits", "no pass is above its limits", 6,
          lesson_step("inference", "pages"), judge_limits},
         {"a12.3-order", "decodes first, and nobody starves", 6,
          lesson_step("inference", "batching"), judge_order},
         {"a12.3-passes", "as few passes as the course's batcher", 8,
          lesson_step("inference", "batching"), judge_passes},
         {"a12.3-pages", "all pages come back", 4, lesson_step("inference", "pages"),
          judge_pages}},
        decode_solutions};
}

}  // namespace lockstep::lessons
