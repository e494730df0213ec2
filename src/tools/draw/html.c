/* The HTML page: the pictures of all graphs, and switches for graphs and channels. */
#include <string.h>
#include "base/mem.h"
#include "tools/draw/label.h"
#include "tools/draw/text.h"
#include "tools/draw/place.h"
#include "tools/draw/svg.h"

/* Windows up to this width show the narrow pictures: a wide one would need letters that are too small. */
#define NARROW_WINDOW "1000"
enum { MOST_ALONE = 1000 }; /* a picture up to this width has no narrow one */

static const char page_style[] =
    ":root{color-scheme:light dark}\n"
    "body{margin:0;background:#ffffff;color:#1b2026;font:14px/1.45 system-ui,-apple-system,\"Segoe "
    "UI\",Roboto,\"DejaVu "
    "Sans\",sans-serif}\n"
    "header{position:sticky;top:0;left:0;z-index:1;padding:10px 14px;background:#f3f5f7;border-bottom:1px "
    "solid #ccd3da}\n"
    "h1{margin:0 0 6px;font-size:17px;overflow-wrap:anywhere}\n"
    "fieldset{display:flex;flex-wrap:wrap;gap:6px;align-items:center;margin:4px "
    "0;padding:0;border:0;min-width:0}\n"
    "legend{float:left;padding:0;margin-right:6px;font-weight:600}\n"
    "label,button{font:inherit;color:inherit;background:#ffffff;border:1px solid "
    "#8793a0;border-radius:14px;padding:2px "
    "10px;cursor:pointer}\n"
    "label:has(:checked){border-width:2px;padding:1px 9px;font-weight:600}\n"
    "label:hover,button:hover{border-color:currentColor}\n"
    ":focus-visible{outline:3px solid #2f7fd6;outline-offset:2px}\n"
    "label "
    "i{display:inline-block;width:10px;height:10px;margin-right:6px;border-radius:5px;background:"
    "currentColor}\n"
    "output{position:sticky;bottom:0;left:0;display:block;padding:8px "
    "14px;white-space:pre-line;overflow-wrap:anywhere;background:#f3f5f7;border-top:1px solid #ccd3da}\n"
    "main{overflow:auto}\nsvg{display:block}\n[hidden]{display:none!important}\n"
    "@media (max-width:" NARROW_WINDOW "px){.wide{display:none}}\n@media (min-width:" NARROW_WINDOW
    ".02px){.narrow{display:none}}\n"
    ".rondo .off{display:none}\n.rondo.one .ch:not(.on){opacity:.12}\n.rondo.one "
    ".l[data-l]:not(.hot){opacity:.3}\n"
    "@media "
    "(prefers-color-scheme:dark){body{background:#14181d;color:#e8ebef}header,output{background:#1a2027;"
    "border-color:#333d48}"
    "label,button{background:#232b34;border-color:#7a8898}}\n"
    "@media print{header fieldset,output{display:none}}\n";

/* Highlights the channel under the pointer and its links, switches graphs and channels on and off, and shows
 * the facts about a clicked element. */
static const char page_script[] =
    "(() => {\n"
    "'use strict';\n"
    "const all = (what, where = document) => [...where.querySelectorAll(what)];\n"
    "const pictures = all('svg.rondo'), facts = document.querySelector('output');\n"
    "const narrow = matchMedia('(max-width:" NARROW_WINDOW "px)');\n"
    "const channel = (picture, t) => picture.querySelector(`.ch[data-t=\"${t}\"]`);\n"
    "const light = (picture, t) => {\n"
    "  const group = t === null ? null : channel(picture, t), links = group ? new "
    "Set(group.dataset.links.split(' ')) : new Set();\n"
    "  picture.classList.toggle('one', group !== null);\n"
    "  for (const other of all('.ch', picture)) other.classList.toggle('on', other === group);\n"
    "  for (const link of all('.l[data-l]', picture)) {\n"
    "    const hot = links.has(link.dataset.l);\n"
    "    link.classList.toggle('hot', hot);\n"
    "    link.style.stroke = hot ? getComputedStyle(group).color : '';\n"
    "  }\n"
    "};\n"
    "const show = (picture, t, on) => channel(picture, t).classList.toggle('off', !on);\n"
    "for (const picture of pictures) {\n"
    "  const chips = document.querySelector(`fieldset[data-for=\"${picture.dataset.graph}\"]`);\n"
    "  for (const chip of all('label', chips)) {\n"
    "    const box = chip.firstElementChild, t = box.value, group = channel(picture, t), dot = "
    "chip.querySelector('i');\n"
    "    const paint = () => { dot.style.color = getComputedStyle(group).color; };\n"
    "    paint();\n"
    "    matchMedia('(prefers-color-scheme:dark)').addEventListener('change', paint);\n"
    "    box.addEventListener('change', () => { show(picture, t, box.checked); light(picture, box.checked ? "
    "t : null); });\n"
    "    for (const [come, go] of [['mouseenter', 'mouseleave'], ['focusin', 'focusout']]) {\n"
    "      chip.addEventListener(come, () => light(picture, box.checked ? t : null));\n"
    "      chip.addEventListener(go, () => light(picture, null));\n"
    "    }\n"
    "  }\n"
    "  for (const button of all('button', chips)) {\n"
    "    button.addEventListener('click', () => {\n"
    "      for (const box of all('input', chips)) { box.checked = button.value === 'all'; show(picture, "
    "box.value, box.checked); }\n"
    "    });\n"
    "  }\n"
    "  for (const group of all('.ch', picture)) {\n"
    "    group.addEventListener('mouseenter', () => light(picture, group.dataset.t));\n"
    "    group.addEventListener('mouseleave', () => light(picture, null));\n"
    "  }\n"
    "  picture.addEventListener('click', event => {\n"
    "    for (let at = event.target; at !== picture; at = at.parentNode) {\n"
    "      const title = [...at.children].find(child => child.tagName === 'title');\n"
    "      if (title) { facts.textContent = title.textContent; return; }\n"
    "    }\n"
    "    facts.textContent = '';\n"
    "  });\n"
    "}\n"
    "let zoom = 1;\n"
    "const main = document.querySelector('main'), percent = document.querySelector('#zoom');\n"
    "const shown = () => pictures.filter(picture => !picture.classList.contains(narrow.matches ? 'wide' : "
    "'narrow'));\n"
    "const width = () => Math.max(...shown().map(picture => picture.viewBox.baseVal.width));\n"
    "const scale = wanted => {\n"
    "  const x = (main.scrollLeft + main.clientWidth / 2) / zoom, y = scrollY / zoom;\n"
    "  zoom = Math.min(4, Math.max(0.1, wanted));\n"
    "  for (const picture of pictures) {\n"
    "    picture.style.width = `${picture.viewBox.baseVal.width * zoom}px`;\n"
    "    picture.style.height = `${picture.viewBox.baseVal.height * zoom}px`;\n"
    "  }\n"
    "  percent.textContent = `${Math.round(100 * zoom)} %`;\n"
    "  main.scrollLeft = x * zoom - main.clientWidth / 2;\n"
    "  scrollTo(scrollX, y * zoom);\n"
    "};\n"
    "const fit = () => document.documentElement.clientWidth / width();\n"
    "const zooms = { fit: () => fit(), in: () => zoom * 1.25, out: () => zoom / 1.25, whole: () => 1 };\n"
    "for (const button of all('button[data-zoom]'))\n"
    "  button.addEventListener('click', () => scale(zooms[button.dataset.zoom]()));\n"
    "main.addEventListener('wheel', event => {\n"
    "  if (!event.ctrlKey) return;\n"
    "  event.preventDefault();\n"
    "  scale(event.deltaY < 0 ? zoom * 1.1 : zoom / 1.1);\n"
    "}, { passive: false });\n"
    "addEventListener('keydown', event => {\n"
    "  const name = { '+': 'in', '-': 'out', '0': 'whole', 'f': 'fit' }[event.key];\n"
    "  if (name && !event.ctrlKey && !event.metaKey && !event.altKey) scale(zooms[name]());\n"
    "});\n"
    "const start = () => scale(fit() >= 0.8 ? Math.min(1.5, fit()) : 1);\n" /* smaller cannot be read */
    "narrow.addEventListener('change', start);\nstart();\n"
    "const select = graph => {\n"
    "  for (const part of all('[data-graph],[data-for]')) part.toggleAttribute('hidden', (part.dataset.graph "
    "?? part.dataset.for) !== "
    "graph);\n"
    "};\n"
    "for (const radio of all('input[name=graph]')) radio.addEventListener('change', () => "
    "select(radio.value));\n"
    "const first = document.querySelector('input[name=graph]:checked');\n"
    "if (first) select(first.value);\n"
    "})();\n";

static int is_drawn(const struct rondo_graph *graph) { return graph->nchannels > 0; }

/* One switch per track of the picture. */
static rondo_status chips_put(FILE *out, const struct rondo_topo *topo, const struct rondo_graph *graph,
                              int all)
{
    struct rondo_place *place;
    char label[RONDO_LABEL];
    RONDO_TRY(rondo_place_create(&place, topo, graph, RONDO_PLACE_WIDTH, all));
    fprintf(out, "<fieldset data-for=\"%s\"><legend>%s: channels</legend>\n", rondo_graph_name(graph->id),
            rondo_graph_name(graph->id));
    for (int t = 0; t < place->ntracks; t++) {
        const char *channels = strchr(rondo_label_track(&place->track[t], label), ' ') + 1;
        fprintf(out,
                "<label><input type=\"checkbox\" value=\"%d\" checked aria-label=\"show %s of the %s\"> "
                "<i></i>%s</label>\n",
                t, label, rondo_graph_name(graph->id), channels);
    }
    fputs("<button type=\"button\" value=\"all\">all</button> <button type=\"button\" "
          "value=\"none\">none</button>\n</fieldset>\n",
          out);
    rondo_place_destroy(place);
    return RONDO_SUCCESS;
}

static rondo_status header_put(FILE *out, const struct rondo_topo *topo,
                               const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int first, int all)
{
    fputs("<header>\n<h1>", out);
    rondo_svg_text(out, rondo_label_source(topo));
    fputs("</h1>\n<fieldset><legend>Graph</legend>\n", out);
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        if (is_drawn(&graphs[id])) {
            fprintf(out, "<label><input type=\"radio\" name=\"graph\" value=\"%s\"%s> %s</label>\n",
                    rondo_graph_name(id), id == first ? " checked" : "", rondo_graph_name(id));
        }
    }
    fputs("<b>Zoom</b> <button type=\"button\" data-zoom=\"fit\">fit</button> <button type=\"button\" "
          "data-zoom=\"out\" aria-label=\"smaller\">\u2212</button> <span id=\"zoom\">100 %</span> <button "
          "type=\"button\" data-zoom=\"in\" aria-label=\"larger\">+</button> <button type=\"button\" "
          "data-zoom=\"whole\">100 %</button>\n</fieldset>\n",
          out);
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        struct rondo_graph shown = rondo_svg_channels(&graphs[id], all);
        if (is_drawn(&graphs[id])) RONDO_TRY(chips_put(out, topo, &shown, all));
    }
    fputs("</header>\n", out);
    return RONDO_SUCCESS;
}

/* The picture of a graph, and one for narrow windows if it is wide. */
static rondo_status picture_put(FILE *out, const struct rondo_topo *topo,
                                const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int graph, int all)
{
    struct rondo_svg_look look = { .graph = graph, .all = all, .limit = RONDO_PLACE_WIDTH, .class = "" };
    struct rondo_graph shown = rondo_svg_channels(&graphs[graph], all);
    struct rondo_place *place;
    if (shown.nchannels > 0 && shown.ndevs != topo->ndevs) return rondo_svg_put(out, topo, graphs, &look);
    RONDO_TRY(rondo_place_create(&place, topo, &shown, look.limit, all));
    int32_t width = place->width;
    rondo_place_destroy(place);
    if (width <= MOST_ALONE) return rondo_svg_put(out, topo, graphs, &look);
    look.class = "wide";
    RONDO_TRY(rondo_svg_put(out, topo, graphs, &look));
    look.class = "narrow";
    look.limit = RONDO_PLACE_NARROW;
    return rondo_svg_put(out, topo, graphs, &look);
}

rondo_status rondo_draw_html(FILE *out, const struct rondo_topo *topo,
                             const struct rondo_graph graphs[RONDO_NUM_GRAPHS], int all)
{
    int first = 0;
    while (first < RONDO_NUM_GRAPHS && !is_drawn(&graphs[first])) first++;
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
          "content=\"width=device-width\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
          out);
    rondo_svg_text(out, rondo_label_source(topo));
    fputs("</title>\n<style>\n", out);
    rondo_svg_style(out);
    fputs(page_style, out);
    fputs("</style>\n</head>\n<body>\n", out);
    if (first < RONDO_NUM_GRAPHS) RONDO_TRY(header_put(out, topo, graphs, first, all));
    fputs("<main>\n", out);
    for (int id = 0; id < RONDO_NUM_GRAPHS; id++) {
        if (is_drawn(&graphs[id]) || (id == 0 && first == RONDO_NUM_GRAPHS))
            RONDO_TRY(picture_put(out, topo, graphs, id, all));
    }
    fputs("</main>\n<output aria-live=\"polite\">Point at a channel to see the links it uses; click a box, a "
          "link or a channel for details."
          "</output>\n",
          out);
    fprintf(out, "<script>\n%s</script>\n</body>\n</html>\n", page_script);
    return rondo_draw_finish(out);
}
