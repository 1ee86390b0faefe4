"""The style of reports, of runs and of federated jobs: light and dark, for wide screens, phones and paper."""

from typing import Final

_PALETTE: Final = """
:root{color-scheme:light dark;--paper:#fbfbfa;--card:#fff;--ink:#1d2126;--soft:#5d6670;--rule:#e2e4e7;--accent:#2f5fb3;
--good:#2c7a4b;--bad:#b3362b;--warn:#96680b;--idle:#8a929b;--c0:#2f5fb3;--c1:#c06a1b;--c2:#2c7a4b;--c3:#8a4a9e}
@media(prefers-color-scheme:dark){:root{--paper:#14171a;--card:#1b1f23;--ink:#e6e8ea;--soft:#9aa3ad;--rule:#2c3238;
--accent:#86aef0;--good:#6cc08b;--bad:#f08a7e;--warn:#e0b45c;--idle:#7d8690;--c0:#86aef0;--c1:#e9a25f;--c2:#6cc08b;
--c3:#c89ad8}}
"""
STYLE: Final = (
    _PALETTE
    + """*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",sans-serif;-webkit-text-size-adjust:100%}
main{max-width:1020px;margin:0 auto;padding:36px 22px 70px}
h1{font-size:25px;line-height:1.25;margin:0 0 4px;font-weight:650;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:17px;margin:44px 0 12px;font-weight:650;letter-spacing:-.005em}
h3{font-size:14px;margin:22px 0 8px;font-weight:600}
p{margin:6px 0 12px;max-width:72ch}.soft{color:var(--soft)}
code,pre{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{margin:8px 0 0;padding:12px 14px;background:var(--card);border:1px solid var(--rule);border-radius:8px;
overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere}
.state{display:inline-block;padding:1px 10px;border:1px solid currentColor;border-radius:99px;font-size:13px;
font-weight:600;color:var(--idle);vertical-align:3px;margin-left:8px;letter-spacing:0}
.state.s-success,.state.s-pass{color:var(--good)}.state.s-failed,.state.s-timeout{color:var(--bad)}
.state.s-running{color:var(--accent)}.state.s-canceled{color:var(--warn)}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(165px,46%),1fr));gap:14px 18px;margin:22px 0 0;
padding:16px 18px;background:var(--card);border:1px solid var(--rule);border-radius:10px}
.facts dt{color:var(--soft);font-size:12.5px}
.facts dd{margin:0;font-weight:550;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
.note{margin:20px 0 0;padding:12px 16px;background:var(--card);border:1px solid var(--rule);
border-left:4px solid var(--warn);border-radius:8px}.note.bad{border-left-color:var(--bad)}
.note p{margin:2px 0}.note b{font-weight:620}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th,td{padding:6px 14px 6px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--rule)}
thead th{color:var(--soft);font-weight:500;font-size:12.5px;white-space:nowrap}tbody th{font-weight:550}
td.n,th.n{text-align:right;white-space:nowrap}td.w,td b{white-space:nowrap}
td.bar{width:34%;min-width:110px;vertical-align:middle}
td.bar svg{display:block;width:100%;height:14px}
.ok{color:var(--good)}.no{color:var(--bad)}.go{color:var(--accent)}.dim{color:var(--soft)}
.two{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(290px,100%),1fr));gap:16px;margin-bottom:16px}
.chart{margin:0;padding:12px 14px;background:var(--card);border:1px solid var(--rule);border-radius:10px}
.chart figcaption{font-size:13px;font-weight:600;margin-bottom:6px}.chart svg{display:block;width:100%;height:auto}
svg text{font-size:10px;fill:var(--soft);font-family:inherit}
.grid{stroke:var(--rule);fill:none}.line{fill:none;stroke-width:1.8;stroke-linejoin:round}
.diagonal{stroke:var(--idle);stroke-dasharray:2 4;fill:none}
.c0{stroke:var(--c0);background:var(--c0)}.c1{stroke:var(--c1);background:var(--c1);stroke-dasharray:6 3}
.c2{stroke:var(--c2);background:var(--c2);stroke-dasharray:2 3}
.c3{stroke:var(--c3);background:var(--c3);stroke-dasharray:8 3 2 3}.dot{fill:var(--c0)}
.legend{display:flex;gap:14px;flex-wrap:wrap;font-size:12.5px;color:var(--soft);margin-top:6px}
.key i{display:inline-block;width:16px;height:3px;border-radius:2px;margin-right:6px;vertical-align:3px}
.tiles{display:flex;flex-wrap:wrap;gap:8px 26px;margin:4px 0 14px}
.tiles div{min-width:88px}.tiles span{display:block;color:var(--soft);font-size:12.5px}
.tiles b{font-size:19px;font-weight:600;letter-spacing:-.01em;font-variant-numeric:tabular-nums}
.wide+.two{margin-top:16px}.confusion{width:auto;margin:0 0 16px}.confusion td{padding-left:14px;
background:color-mix(in srgb,var(--c0) calc(var(--part)*.55),transparent)}
.times th{width:1%;white-space:nowrap}.times td{white-space:nowrap;width:1%}.times td.bar{width:auto}
svg.bins{display:block;margin:-4px 0}.bins .up{fill:var(--c0)}.bins .down{fill:var(--c1)}
.graph{display:block;margin:0 auto 18px;max-width:100%;height:auto}
.graph .name{font-size:12px;fill:var(--ink);font-weight:600}
.box{fill:var(--card);stroke:var(--rule);stroke-width:1.2}.edge{fill:none;stroke:var(--idle);stroke-width:1.2}
circle.state{fill:var(--idle)}rect{fill:var(--idle)}
.s-success circle.state,.s-success>rect:not(.box),.s-pass circle.state{fill:var(--good)}
.s-failed circle.state,.s-failed>rect:not(.box),.s-timeout circle.state{fill:var(--bad)}
.s-failed .box,.s-timeout .box{stroke:var(--bad)}
.s-running circle.state,.s-running>rect:not(.box){fill:var(--accent)}.s-running .box{stroke:var(--accent)}
.s-canceled circle.state,.s-canceled>rect:not(.box){fill:var(--warn)}
.share rect{fill:var(--c0);opacity:.75}
details{border:1px solid var(--rule);border-radius:8px;background:var(--card);margin:8px 0;padding:8px 14px}
details pre{border:0;padding:6px 0 2px;background:none}summary{cursor:pointer;font-weight:550}
footer{margin-top:56px;padding-top:14px;border-top:1px solid var(--rule);color:var(--soft);font-size:13px}
@media(max-width:560px){main{padding:22px 14px 50px}h1{font-size:20px}.state{margin-left:0}table{font-size:13px}
td.bar{min-width:80px}.wide td:first-child:not(.w){min-width:128px}
.long{display:inline-block;min-width:180px}.wide td.w{padding-right:10px}}
@media print{body{background:#fff}details{break-inside:avoid}.chart{break-inside:avoid}h2{break-after:avoid}}
"""
)

_STATES: Final = """
.s-succeeded{--s:var(--good)}.s-failed{--s:var(--bad)}.s-running,.s-terminating{--s:var(--accent)}
.s-terminated,.s-cancelled,.s-interrupted,.s-suspended{--s:var(--warn)}.s-pending,.s-skipped{--s:var(--idle)}
.graph circle.state{fill:var(--s,var(--idle))}
.graph .box{fill:var(--card);stroke:var(--s,var(--rule));stroke-width:1.2}
.graph .s-succeeded .box{stroke:var(--rule)}.graph .s-skipped .box,.graph .s-pending .box{stroke-dasharray:4 3}
.graph .s-failed .box{stroke-width:2}
.edge{fill:none;stroke:var(--idle);stroke-width:1.2;marker-end:url(#arrow)}.edge.order{stroke-dasharray:2 3}
.tip{fill:var(--idle)}
"""
RUN_STYLE: Final = (
    STYLE
    + _STATES
    + """.unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
a{color:var(--accent)}:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
nav{margin:18px 0 0;font-size:13.5px;line-height:2}nav ul{list-style:none;display:flex;flex-wrap:wrap;gap:0 16px;
margin:0;padding:0}
.state,.sign{color:var(--s,var(--idle))}.sign{white-space:nowrap;font-weight:550}
.graph .name{font-size:12px;fill:var(--ink);font-weight:600}
.span{fill:var(--s,var(--idle))}.bar .track{fill:var(--rule);opacity:.45}.bar svg .many{fill:var(--good)}
.bar svg.s-running .many{fill:var(--accent)}.bar svg .bad{fill:var(--bad)}
.axis{display:flex;justify-content:space-between;font-variant-numeric:tabular-nums}
.times th{max-width:260px;overflow:hidden;text-overflow:ellipsis}
.times th.bar{width:auto}.times .n{width:1%;padding-left:14px}

td.why{min-width:200px;overflow-wrap:anywhere;white-space:pre-line}th[scope=row]{min-width:130px;
overflow-wrap:anywhere}
.in1{padding-left:16px}.in2{padding-left:32px}.in3{padding-left:48px}td code{overflow-wrap:anywhere}
td code[title]{white-space:nowrap}.facts{grid-template-columns:repeat(auto-fill,minmax(min(178px,46%),1fr))}
.wide+.wide{margin-top:16px}
.legend .key{white-space:nowrap}.legend .dot-s{display:inline-block;width:9px;height:9px;border-radius:9px;
background:var(--s,var(--idle));margin-right:6px;vertical-align:0}
@media(max-width:560px){.times th{max-width:110px}th[scope=row]{min-width:92px}.times td.bar{min-width:130px}}
@media print{.wide{overflow:visible}nav{display:none}details::details-content{content-visibility:visible;display:block}
body{font-size:12px}main{max-width:none;padding:0}.graph{min-width:0!important}tr{break-inside:avoid}}
"""
)
"""The style of the page of a run."""
GRAPH_STYLE: Final = (
    _PALETTE
    + _STATES
    + """.graph{background:var(--paper);font-family:system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
text{font-size:10px;fill:var(--soft)}.name{font-size:12px;fill:var(--ink);font-weight:600}
"""
)
"""The style of the picture of a graph in a file of its own."""
