#include "lessons/page/language.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

namespace lockstep::lessons {

namespace {

// Texts around a page.
constexpr auto kChinese = std::to_array<Phrase>({
    {"Step {} of {}: {}", "第 {} 步（共 {} 步）：{}"},
    {"Predict:", "预测："},
    {"Right:", "正确："},
    {"No, it is:", "不对，应为："},
    {"Answer:", "答案："},
    {"Your answer:", "你的回答："},
    {"Your answer", "你的回答"},
    {", in {}", "，单位 {}"},
    {", a letter from the list", "，选一个字母"},
    {"Enter skips", "回车跳过"},
    {"passed", "已跳过"},
    {"Not yet.", "还不对。"},
    {"Once more", "再试一次"},
    {"Bits or bytes? A byte has 8 bits.", "是比特还是字节？一个字节有 8 个比特。"},
    {"1 KiB is 1,024 bytes, 1 kB is 1,000.", "1 KiB 是 1,024 字节，1 kB 是 1,000 字节。"},
    {"The answer is larger.", "答案更大。"},
    {"The answer is smaller.", "答案更小。"},
    {"Type a number such as 1,500, 1.5e3, 1/4, 25% or 150 KiB. Answers within 1 % count "
     "as right.",
     "请输入一个数，例如 1,500、1.5e3、1/4、25% 或 150 KiB；误差在 1% 以内算对。"},
    {"Press Enter again to skip. The answer is then shown and the question is closed.",
     "再按一次回车即跳过：答案会显示，且不能再改。"},
    {"Computing …", "计算中……"},
    {"Type q, b, n or s to use these keys here; n and s skip the question.",
     "单独输入 q、b、n 或 s，作用与别处的按键相同；n 和 s 表示跳过。"},
    {"Type a letter from a to {}.", "请输入 a 到 {} 之间的一个字母。"},
    {"byte", "字节"},
    {"bytes", "字节"},
    {"ok", "通过"},
    {"FAILED", "失败"},
    {"{} more checks passed.", "另有 {} 项检查，全部成立。"},
    {"One more check passed.", "另有 1 项检查，也成立。"},
    {"{}, but at most {} is allowed", "{}，而上限是 {}"},
    {"{} instead of {}", "{}，应为 {}"},
    {"(Not compared, because this run computes only shapes.)",
     "（未比较：这次运行只计算形状。）"},
    {"(The assignment {} asks you to write this code. Once you have, run this lesson "
     "with --show code to see the course's version.)",
     "（这段代码正是作业 {} 要求写的。写好自己的之后，本课的选项 --show code "
     "会给出课程的代码。）"},
    {"About {} minutes.", "约 {} 分钟。"},
    {"After: {}.", "先修：{}。"},
    {"Assignment: {}.", "作业：{}。"},
    {"Done.", "已完成。"},
    {"You stopped at step {}.", "上次停在第 {} 步。"},
    {"What comes next", "接下来"},
    {"The assignment {0} goes with this lesson: lockstep assignment new {0} DIR",
     "本课的作业是 {0}：lockstep assignment new {0} 目录"},
    {"The next lesson is {0}: lockstep lesson {1}", "下一课：{0}：lockstep lesson {1}"},
    {"This was the last lesson. lockstep lessons lists them all.",
     "这是最后一课。lockstep lessons 列出全部课程。"},
    {"All {} checks passed.", "全部 {} 项检查通过。"},
    {"All {} checks passed, including those of earlier steps.",
     "全部 {} 项检查通过，包括前面各步的检查。"},
    {"The check passed.", "检查通过。"},
    {"{} of {} checks failed: {}.", "{1} 项检查中有 {0} 项失败：{2}。"},
    {"The record of this run is in {}.", "本次运行的记录在 {}。"},
    {"Predictions: {} of {} right at once, {} at the second try, {} wrong, {} skipped.",
     "预测：{1} 题中一次答对 {0} 题，第二次答对 {2} 题，答错 {3} 题，跳过 {4} 题。"},
    {"You stopped at step {} of {}. lockstep lesson {} continues there; --from start "
     "begins again.",
     "停在第 {} 步（共 {} 步）。lockstep lesson {} 从这里继续；--from start "
     "从头开始。"},
    {"The record of what was done is in {}.", "已完成部分的记录在 {}。"},
    {"Times of {} were fitted to measurements; they are {:.0f} % off in the mean.",
     "{} 的时间是用测量拟合的，平均误差 {:.0f} %。"},
    {"How far each run was from its roof: the time that its products, its bytes of "
     "memory or its messages take on the busiest device if nothing waits and the data "
     "sheet's rates are reached; launches and latencies are not in it. The longest of "
     "the three binds.",
     "各次运行离“屋顶”多远：假如什么都不等待，并且达到数据手册上的速率，最忙的设备做"
     "乘法、读写显存、收发消息各要多久；不算启动和延迟。三者中最长的一项是瓶颈。"},
    {"run", "运行"},
    {"took", "用时"},
    {"products", "乘法"},
    {"links", "链路"},
    {"× its roof", "屋顶的倍数"},
    {"{} continues where you stopped; --from start begins again.",
     "{}：从上次停下的地方继续；--from start 从头开始。"},
    {"more", "继续"},
    {"next step", "下一步"},
    {"end", "结束"},
    {"back", "返回"},
    {"the rest of this step", "全部显示"},
    {"quit", "退出"},
    {"help", "帮助"},
    {"Answer", "回答"},
    {"Skip", "跳过"},
    {"Contents", "目录"},
    {"The answer", "答案"},
    {"The book", "全书"},
    {"Skip to the text", "跳到正文"},
    {"Light or dark", "明暗"},
    {"Mistakes", "错误"},
    {"Words", "词汇"},
    {"Limits", "局限"},
    {"Laboratories", "实验室"},
    {"What Lockstep does not model", "Lockstep 没有建模的内容"},
    {"The next lesson is {}.", "下一课：{}。"},
    {"Computed by Lockstep {}.", "由 Lockstep {} 计算。"},
    // The scripts of the book.
    {"This lesson asks {} predictions. The text after a question appears once you have "
     "answered or skipped it.",
     "本课有 {} 个预测。回答或跳过一个问题之后，才显示它后面的内容。"},
    {"Show everything, without predicting", "不做预测，全部显示"},
    {"Choose one.", "请选一项。"},
    {"The part that computes could not be loaded: {}", "无法载入计算部分：{}"},
    {"Save your predictions, to hand them in", "保存你的预测，以便提交"},
    {"Begin again", "重新开始"},
    {"Delete your predictions for this lesson?", "要删除你在本课中的预测吗？"},
    {"Point at a box, or choose the picture with the Tab key and use the arrow keys: it "
     "says what it is.",
     "把鼠标指到一格上，或者用 Tab 键选中图，再用方向键：它会说明那是什么。"},
    {"{} of {} predictions made.", "已完成 {1} 个预测中的 {0} 个。"},
    // All laboratories.
    {"There is no {}={} here; another setting is shown.",
     "这里没有 {}={}，所以显示的是别的内容。"},
    {"Back", "上一步"},
    {"Next", "下一步"},
    {"Play", "播放"},
    {"Pause", "暂停"},
    {"Step", "步"},
    {"{} of {}", "第 {} 步，共 {} 步"},
    {"Speed", "速度"},
    {"slow", "慢"},
    {"medium", "中"},
    {"fast", "快"},
    {"Devices", "设备数"},
    // The laboratory of pipelines.
    {"Schedule", "调度"},
    {"Stages, p", "阶段数 p"},
    {"Micro-batches, m", "微批次数 m"},
    {"Chunks a stage, v", "每个阶段的分块数 v"},
    {"Forward, t_f", "前向 t_f"},
    {"Backward of inputs, t_i", "输入的反向 t_i"},
    {"Backward of weights, t_w", "权重的反向 t_w"},
    {"A message", "一条消息"},
    {"Messages go one at a time on each stage", "每个阶段一次只传一条消息"},
    {"It takes {}; the bubble is {} of the time.", "总共需要 {}；气泡占时间的 {}。"},
    {"The same in a terminal:", "在终端里得到同样的结果："},
    {"Copy", "复制"},
    {"Copied.", "已复制。"},
    {"It is selected: press Ctrl+C.", "已选中，请按 Ctrl+C。"},
    {"Figures", "数值"},
    {"Each stage", "各个阶段"},
    {"Formulas and what was measured", "公式与测得的值"},
    {"formula", "公式"},
    {"holds if", "成立的条件"},
    {"it says", "公式给出"},
    {"measured", "测得"},
    {"always", "总是成立"},
    {"equal", "相等"},
    {"differs", "不相等"},
    {"differs: the condition is not met", "不相等：条件不满足"},
    {"Critical path, and how times are counted", "关键路径，以及时间如何计算"},
    {"The schedule by hand", "自己动手排调度"},
    {"In flight: the most micro-batches (of a chunk) at a time whose forward is done and "
     "whose backward is not. Between halves: the most whose backward of inputs is done "
     "and whose backward of weights is not.",
     "前向已做、反向未做：同时处于这种状态的（一个分块的）微批次最多有几个。两半反"
     "向之间：输入的反向已做、权重的反向未做的最多有几个。"},
    {"Each row is what one stage does, in its order. Move an instruction within its "
     "row: drag it; or go to it with the arrow keys, press Enter, move it with ← and "
     "→, and press Enter again (Escape puts it back). Delete removes it. The field of "
     "a row has the same instructions as text: type there to add some.",
     "每一行是一个阶段依次要做的事。可以在行内移动一条指令：用鼠标拖动；或者用方向键走"
     "到它，按回车键，用 ← 和 → 移动，再按回车键放下（Escape 放回原处）。Delete "
     "键删除它。每行的输入框里是同样的指令，可以在那里键入来添加。"},
    {"Start from the schedule above", "从上面的调度开始"},
    {"Instructions of stage {}, as text", "阶段 {} 的指令（文字）"},
    {"{}, stage {}, {} of {}", "{}，阶段 {}，第 {} 条，共 {} 条"},
    {"{} is taken: move it with the arrow keys.", "已拿起 {}：用方向键移动它。"},
    {"{} is now instruction {} of {}.", "{} 现在是第 {} 条，共 {} 条。"},
    {"{} is put back.", "{} 已放回原处。"},
    {"{} is removed.", "{} 已删除。"},
    {"It runs.", "它可以运行。"},
    {"It cannot run.", "它无法运行。"},
    {"The numbers and arrows: each of these waits for the next, and the last "
     "for the first.",
     "数字和箭头：其中每一条都在等下一条，最后一条在等第一条。"},
    {"Save it as schedule.csv", "保存为 schedule.csv"},
    {"The address can contain only {} instructions per stage: this row can be saved but "
     "not shared.",
     "地址里一个阶段最多放 {} 条指令：这一行可以保存，但不能通过地址分享。"},
    {"The schedule in the address is too large, and is left out.",
     "地址中的调度太大，没有采用。"},
    // The laboratory of the ring.
    {"Program", "程序"},
    {"as it should be", "正确的程序"},
    {"without any wait()", "没有任何 wait()"},
    {"without the wait() of step {}", "第 {} 步没有 wait()"},
    {"send, then receive, without a group", "先发送，再接收，不成组"},
    {"A ring of {} devices after step {}", "{} 个设备的环，第 {} 步之后"},
    {"chunk {} of device {}: {}; made of: {}", "设备 {1} 的第 {0} 块：{2}；其中有：{3}"},
    {"{} × chunk {} of device {}", "{0} × 设备 {2} 的第 {1} 块"},
    {"A filled square: the device of that colour has its number in this sum. A figure in "
     "it says how many times, if it is more than once. ≠: numbers of another chunk are "
     "in it. Blue frame: this step has changed the chunk. Red frame: it is wrong at the "
     "end.",
     "实心方格：该颜色设备的数在这个和里；如果不止一次，方格里的数字说明有几次。≠"
     "：里面有别的块的数。蓝色边框：这一步改变了这一块。红色边框：结束时它是错的。"},
    {"sends chunk", "发送的块"},
    {"bytes sent so far", "已发送的字节"},
    {"A buffer has S = {} bytes: {} chunks of 64 numbers, of which the first "
     "is drawn.",
     "一个缓冲区有 S = {} 字节：{} 块，每块 64 个数，图中是其中的第一个。"},
    {"2(n − 1)/n · S = 2 · {}/{} · {} = {} bytes for each device",
     "2(n − 1)/n · S = 2 · {}/{} · {} = {} 字节（每个设备）"},
    {" (the run counted {})", "（运行中数到的是 {}）"},
    {"Before the first step each device has a buffer of {} chunks with its "
     "own numbers.",
     "第一步之前，每个设备的缓冲区有 {} 块，都是它自己的数。"},
    {"reduce-scatter: each device sends one chunk to the next, and adds the one that "
     "comes to its own.",
     "reduce-scatter：每个设备把一块发给下一个设备，并把收到的块加到自己的块上。"},
    {"all-gather: each device sends a finished chunk to the next, which "
     "replaces its own.",
     "all-gather：每个设备把完成的一块发给下一个设备，代替那里原来的块。"},
    {"Device {} began to add at {} µs, but the chunk arrived at {} µs. It "
     "added what was in the buffer before; so did the others.",
     "设备 {} 在 {} µs 开始相加，而它的块在 {} µs "
     "才到。它加上的是缓冲区里原来的数；其他设备也一样。"},
    {"Each chunk is now complete on one device.", "现在每一块都在一个设备上完成了。"},
    {"All devices have all sums.", "所有设备都有全部的和。"},
    {"{} of {} chunks are wrong at the end; these have a red frame.",
     "结束时 {1} 块中有 {0} 块是错的，有红色边框。"},
    {"Every chunk is right at the end, on all devices.",
     "结束时所有设备上的每一块都正确。"},
    {"These devices looked at their buffers before the last chunks had arrived.",
     "这些设备在最后的块到达之前就看了自己的缓冲区。"},
    {"Each device waits for the next one to receive (thick arrows), and no one does.",
     "每个设备都等下一个设备接收（粗箭头），却没有设备在接收。"},
    {"What the checker says", "检查器的话"},
    {"Full checking finds nothing in this program.",
     "完全检查（full）在这个程序中没有发现错误。"},
    {"The wait of a later step is enough: operations of one communicator end in order, "
     "so this chunk has arrived when a later one has.",
     "后面一步的等待就够了：一个通信器的操作按顺序结束，所以后面的块到达时，这"
     "一块也已到达。"},
    {"Cheap checking finds this, too.", "简单检查（cheap）也能发现。"},
    {"Cheap checking finds {}.", "简单检查（cheap）发现的是 {}。"},
    {"Cheap checking finds nothing: it lets the program go on, with the "
     "numbers that you see.",
     "简单检查（cheap）什么也没发现：程序继续运行，得到你看到的数。"},
    {"The program, with the lines that the checker names", "程序，以及检查器指出的行"},
    // The laboratory of attention.
    {"Method", "方法"},
    {"all-gather of keys and values", "all-gather 键和值"},
    {"Mask", "掩码"},
    {"none", "无"},
    {"causal", "因果"},
    {"Tokens", "词元顺序"},
    {"contiguous", "连续"},
    {"striped", "条状（striped）"},
    {"zigzag", "之字形（zigzag）"},
    {"Links", "链路"},
    {"slow, a quarter as fast", "慢，四分之一的速度"},
    {"Draw by", "排列方式"},
    {"place in the sequence", "序列中的位置"},
    {"Queries and keys after step {}", "第 {} 步之后的查询和键"},
    {"queries {}", "查询 {}"},
    {"keys {}", "键 {}"},
    {"What each device does over time", "每个设备在什么时间做什么"},
    {"all", "全部"},
    {"Nothing is computed yet. A grey square is a pair of a query and a key "
     "that still has to be computed.",
     "还没有计算。一个灰色方格是一对还要计算的查询和键。"},
    {"Each device attends to its own keys and values while it sends them to the next "
     "device.",
     "每个设备计算自己的键和值，同时把它们传给下一个设备。"},
    {"Each device attends to the keys and values that have travelled 1 hop.",
     "每个设备计算走了 1 跳到达这里的键和值。"},
    {"Each device attends to the keys and values that have travelled {} hops.",
     "每个设备计算走了 {} 跳到达这里的键和值。"},
    {"Each device has got all keys and values, and attends to them at once.",
     "每个设备得到了全部键和值，一次算完。"},
    {"Each device has got all tokens of its share of the heads, and attends "
     "to all pairs, for these heads alone. (heads a device: {})",
     "每个设备得到了它那一份头的全部词元，只为这些头计算所有的对。（每个设备的"
     "头数：{}）"},
    {"Blocks: {} full, {} partly masked, {} skipped.",
     "块：{} 个完整，{} 个部分被遮，{} 个跳过。"},
    {"full", "完整"},
    {"partly masked", "部分被遮"},
    {"nothing: skipped", "没有：跳过"},
    {"keys of device", "哪个设备的键"},
    {"pairs of a head", "一个头的对数"},
    {"block", "块"},
    {"attends from, to (ns)", "计算从、到（ns）"},
    {"pairs in all", "总对数"},
    {"The run takes {} ns. Evenly divided and without waiting, the same work would take "
     "{} ns (dashed line): {} %.",
     "运行用时 {} ns。如果同样的工作平均分配，又不用等待，需要 {} ns（虚线）：{} %。"},
    {"Each device sends {} bytes, and holds {} bytes at most.",
     "每个设备发送 {} 字节，最多占用 {} 字节。"},
    {"Colour: the device whose keys these are; grey: the keys of all devices. Hatched: "
     "the device does nothing. Empty: it does something else (it begins, or divides by "
     "the sums). Thin bar: a message.",
     "颜色：键属于哪个设备；灰色：所有设备的键。斜线：设备空闲。空白：别的运算（开"
     "始，或除以总和）。细条：消息。"},
});

// Texts of pictures and tables. They arrive here with values in the places of {}.
constexpr auto kPictureWords = std::to_array<Phrase>({
    {"operation", "操作"},
    {"forward", "前向"},
    {"backward", "反向"},
    {"backward, inputs", "反向，输入"},
    {"backward, weights", "反向，权重"},
    {"update", "更新"},
    {"another phase", "其他阶段"},
    {"send and receive", "发送和接收"},
    {"message sent", "发送消息"},
    {"message received", "接收消息"},
    {"communication", "通信"},
    {"copy between host and device", "主机与设备之间的复制"},
    {"operation in a phase", "阶段中的操作"},
    {"micro-batch", "微批次"},
    {"0 1 2: micro-batches", "0 1 2：微批次"},
    {"idle", "空闲"},
    {"nothing", "无操作"},
    {"busy", "忙碌"},
    {"time", "时间"},
    {"time in {}", "时间（{}）"},
    {"peak", "峰值"},
    {"; {} is {}", "；{} 表示 {}"},
    {"held, in micro-batches", "保存的微批次数"},
    {"held, in micro-batches of a chunk", "保存的微批次数（按分块计）"},
    {"held for backward", "为反向保存"},
    {"held between its halves", "在反向的两半之间保存"},
    {"memory held", "保存的内存"},
    {"memory", "内存"},
    {"parameters", "参数"},
    {"gradients", "梯度"},
    {"optimizer", "优化器"},
    {"activations", "激活值"},
    {"workspace", "临时空间"},
    {"cache", "缓存"},
    {"chunk {}", "分块 {}"},
    {"micro-batch {}", "微批次 {}"},
    {"stage {}", "阶段 {}"},
    {"device {}", "设备 {}"},
    {"devices {}", "设备 {}"},
    {"device", "设备"},
    {"devices", "设备"},
    {"stage", "阶段"},
    {"stages", "阶段"},
    {"node {}", "节点 {}"},
    {"nodes {}", "节点 {}"},
    {"{} more rows", "还有 {} 行"},
    // Titles, notes and tooltips.
    {"{}: {} stage, {} micro-batch", "{}：{} 个阶段，{} 个微批次"},
    {"{}: {} stage, {} micro-batches", "{}：{} 个阶段，{} 个微批次"},
    {"{}: {} stages, {} micro-batch", "{}：{} 个阶段，{} 个微批次"},
    {"{}: {} stages, {} micro-batches", "{}：{} 个阶段，{} 个微批次"},
    {"{}: {} stages, {} micro-batches, {} chunks a stage",
     "{}：{} 个阶段，{} 个微批次，每个阶段 {} 个分块"},
    {"{}: {} stages, {} micro-batch, {} chunks a stage",
     "{}：{} 个阶段，{} 个微批次，每个阶段 {} 个分块"},
    {"{}: {} stage, {} micro-batches, {} chunks a stage",
     "{}：{} 个阶段，{} 个微批次，每个阶段 {} 个分块"},
    {"{}: {} stage, {} micro-batch, {} chunks a stage",
     "{}：{} 个阶段，{} 个微批次，每个阶段 {} 个分块"},
    {"{} device, {}", "{} 个设备，{}"},
    {"blocks {}", "块 {}"},
    {"heads {}", "头 {}"},
    {"sequences {}", "序列 {}"},
    {"tokens {}", "词元 {}"},
    {"the table", "嵌入表"},
    {"the head", "输出头"},
    {"holds {}", "保存 {}"},
    {"{} devices, each on its own node", "{} 个设备，每个自成一个节点"},
    {"1 node", "1 个节点"},
    {"{} nodes of {}, the last one with {}", "{} 个节点，每个 {} 个设备，最后一个 {} 个"},
    {"{} nodes of {}", "{} 个节点，每个 {} 个设备"},
    {"{} devices, {}", "{} 个设备，{}"},
    {"{}; {} messages without arrows", "{}；{} 条消息没有画箭头"},
    {"{}: at most {}", "{}：最多 {}"},
    {"{} spans, the longest: {}", "{} 段，其中最长的：{}"},
    {"{} on stage {}, {} to {}", "阶段 {1} 上的 {0}，从 {2} 到 {3}"},
    {"first of its stage", "这个阶段的第一项"},
    {"begins as its message arrives", "它的消息到达时开始"},
    {"begins when {}, the one before it, ends", "前面的 {} 结束时开始"},
    {"begins as the message of {} of stage {} arrives",
     "阶段 {1} 的 {0} 的消息到达时开始"},
    {"begins as {} of stage {} ends", "阶段 {1} 的 {0} 结束时开始"},
    {"{} to {} ({})", "{} 到 {}（{}）"},
    {"{} from device {} to device {}, {} to {}", "{}，从设备 {} 到设备 {}，{} 到 {}"},
    {"it waited {} for {}", "它等了 {}，等的是 {}"},
    {"it began when all its devices arrived, at the same time", "各设备同时到达时它开始"},
    {"it began when {} arrived last", "最后到达的 {} 到了之后它开始"},
    {"it began when the previous {} in its queue ended", "前面的 {} 结束之后它开始"},
    // Tables of schedules.
    {"whole schedule", "整个调度"},
    {"makespan, from time 0 to the last stage's end", "总时间，从 0 到最后一个阶段结束"},
    {"the longest stage, from its own start to its own end",
     "最长的阶段，从它自己的开始到它自己的结束"},
    {"what the busiest stage computes", "最忙的阶段的计算时间"},
    {"bubble, the difference of these two", "气泡，即以上两者之差"},
    {"bubble over total, as GPipe and Zero Bubble divide",
     "气泡除以总时间（GPipe 和 Zero Bubble 的算法）"},
    {"bubble over ideal, as Narayanan et al. (SC21) divide",
     "气泡除以理想时间（Narayanan 等，SC21）"},
    {"utilisation of all stages over the makespan", "利用率，所有阶段在总时间内"},
    {"start", "开始"},
    {"end", "结束"},
    {"in flight", "前向已做、反向未做"},
    {"between halves", "两半反向之间"},
    {"peak memory", "内存峰值"},
    {"weight versions", "权重版本"},
    {"makespan", "总时间"},
    {"bubble", "气泡"},
    {"replica", "副本"},
    {"replicas", "副本"},
    {"rows of a prompt", "提示的行"},
    {"a token", "一个词元"},
    {"prompts and tokens in one pass", "同一次前向中既有提示也有词元"},
    {"rows computed again, because the request was preempted", "因页被收回而重算的行"},
    {"a pass without rows, for other ranks", "没有行的一次前向，为其他 rank 而算"},
    {"waits", "等待"},
    {"request {} waits", "请求 {} 等待"},
    {"in pass {}", "在第 {} 次前向中"},
    {"pass {}, {}", "第 {} 次前向，{}"},
    {"{} row of a prompt, {}", "提示的 {} 行，{}"},
    {"{} row of a prompt", "提示的 {} 行"},
    {"{} rows of prompts, {}", "提示的 {} 行，{}"},
    {"{} rows of prompts", "提示的 {} 行"},
    {"{} decode", "{} 次解码"},
    {"{} decodes", "{} 次解码"},
    {"without rows", "没有行"},
    {"token {} of request {}", "请求 {1} 的第 {0} 个词元"},
    {"request {}, {}", "请求 {}，{}"},
    {"row {}, {}", "第 {} 行，{}"},
    {"row {}", "第 {} 行"},
    {"rows {} to {}, {}", "第 {} 到 {} 行，{}"},
    {"rows {} to {}", "第 {} 到 {} 行"},
    {"once more, {}", "重算，{}"},
    {"once more", "重算"},
    {"and token {}", "并得到第 {} 个词元"},
    {"{} of {} pages", "{} 页，共 {} 页"},
    {"pages that sequences have", "序列占用的页"},
    {"pages of devices that compute prompts", "计算提示的设备的页"},
    {"pages of devices that generate tokens", "生成词元的设备的页"},
    {"the first {} of {} requests", "前 {} 个请求，共 {} 个"},
    {"messages are free", "消息不花时间"},
    {"{}, messages are free", "{}，消息不花时间"},
});

/// Returns the parts of a text that match the {} of a pattern; none if it does not match.
std::optional<std::vector<std::string>> matched(std::string_view pattern,
                                                std::string_view text) {
    constexpr std::string_view kPlace = "{}";
    std::vector<std::string> values;
    while (true) {
        const std::size_t place = pattern.find(kPlace);
        const std::string_view before = pattern.substr(0, place);
        if (!text.starts_with(before)) return std::nullopt;
        text.remove_prefix(before.size());
        if (place == pattern.npos) break;
        pattern.remove_prefix(place + kPlace.size());
        const std::string_view behind = pattern.substr(0, pattern.find(kPlace));
        const std::size_t end = behind.empty() ? text.size() : text.find(behind);
        if (end == text.npos) return std::nullopt;
        values.emplace_back(text.substr(0, end));
        text.remove_prefix(end);
    }
    if (!text.empty()) return std::nullopt;
    return values;
}

}  // namespace

std::vector<Phrase> phrases() {
    std::vector<Phrase> all(kChinese.begin(), kChinese.end());
    all.insert(all.end(), kPictureWords.begin(), kPictureWords.end());
    return all;
}

Language language_of_locale(std::string_view locale) {
    return locale.starts_with("zh") ? Language::chinese : Language::english;
}

std::string said(Language language, std::string_view english) {
    if (language == Language::english) return std::string(english);
    const auto found = std::ranges::find(kChinese, english, &Phrase::english);
    if (found == kChinese.end())
        throw std::logic_error("nobody has translated '" + std::string(english) + "'");
    return std::string(found->chinese);
}

std::string joined(Language language, const std::vector<std::string>& sentences) {
    std::string text;
    for (const std::string& sentence : sentences) {
        const bool is_parted =
            language == Language::english && !text.empty() && !sentence.empty();
        text += (is_parted ? " " : "") + sentence;
    }
    return text;
}

std::string in_chinese(std::string_view english) {
    if (const std::size_t end = english.find('\n'); end != english.npos)
        return in_chinese(english.substr(0, end)) + "\n" +
               in_chinese(english.substr(end + 1));
    constexpr std::size_t kMostPlaces = 5;
    for (const Phrase& each : kPictureWords) {
        // The text may itself be a pattern ("time in {}"), which the caller fills in.
        if (each.english == english) return std::string(each.chinese);
        std::optional<std::vector<std::string>> values = matched(each.english, english);
        if (!values) continue;
        for (std::string& value : *values)
            value = in_chinese(value);
        values->resize(kMostPlaces);
        const std::vector<std::string>& v = *values;
        return fmt::format(fmt::runtime(each.chinese), v[0], v[1], v[2], v[3], v[4]);
    }
    return std::string(english);
}

}  // namespace lockstep::lessons
