"""Colours, rules and script of the report's page and pictures. Colours: Okabe and Ito 2008, which colour-blind readers can tell apart."""

from __future__ import annotations

import re

_LIGHT = {
    "ground": "#fff", "ink": "#1b1f24", "soft": "#57606a", "line": "#d0d7de", "card": "#f6f8fa", "prefill": "#0072b2", "decode": "#d55e00",
    "gemm": "#0072b2", "attention": "#d55e00", "norm": "#009e73", "elementwise": "#cc79a7", "embedding": "#8a6d00", "experts": "#56b4e9",
    "recurrent": "#7b4fa3", "other": "#6e7781", "p0": "#9ec9e2", "p1": "#f3c29b", "p2": "#a5d8c5", "p3": "#e6bdd3", "p4": "#e9dc9b",
    "p5": "#c9cfd6", "more": "#d55e00", "less": "#009e73",
}  # fmt: skip
_DARK = {
    "ground": "#0d1117", "ink": "#e6edf3", "soft": "#9198a1", "line": "#30363d", "card": "#161b22", "prefill": "#56b4e9",
    "decode": "#ff9b52", "gemm": "#56b4e9", "attention": "#ff9b52", "norm": "#2fd3a4", "elementwise": "#e79cc5", "embedding": "#e0c341",
    "experts": "#9ad7ff", "recurrent": "#c39be8", "other": "#9198a1", "p0": "#1f5577", "p1": "#7a4517", "p2": "#1a5e4b", "p3": "#6d3f5a",
    "p4": "#5d5413", "p5": "#3d444d", "more": "#ff9b52", "less": "#2fd3a4",
}  # fmt: skip
THEMES = {"light": _LIGHT, "dark": _DARK}
_CLASSES = ("gemm", "attention", "norm", "elementwise", "embedding", "experts", "recurrent")
_TRENDS = ("gemm", "attention", "norm", "elementwise", "embedding", "other")

#: Of everything drawn, on the page and in files.
_DRAWN = """
text{font-size:12px;fill:var(--soft)}.label,.inside{fill:var(--ink)}.head{fill:var(--ink);font-size:16px;font-weight:600}
.grid{stroke:var(--line);stroke-width:.6}.axis{stroke:var(--soft);fill:none}polyline{fill:none}
.solid{stroke:var(--ink);stroke-width:1.8;fill:none}.dashed{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:7 5;fill:none}
.ridge{stroke:var(--soft);stroke-dasharray:1 4}.joint{stroke:var(--soft);stroke-dasharray:2 3}
.error{stroke:var(--ink);stroke-width:1;fill:none}.leader{stroke:var(--soft);stroke-width:.6;fill:none}
.band25{fill:var(--gemm);opacity:.10}.band10{fill:var(--gemm);opacity:.16}
.filled.prefill{fill:var(--prefill)}.filled.decode{fill:var(--decode)}.hollow{fill:none;stroke-width:1.6}
.hollow.prefill{stroke:var(--prefill)}.hollow.decode{stroke:var(--decode)}.dot{fill:var(--other);stroke:var(--ground);stroke-width:.7}
.weak{opacity:.35}.trend{stroke-width:1.5;stroke:var(--other);fill:none}
.piece{stroke:var(--ground);stroke-width:1.5}.more{fill:var(--more)}.less{fill:var(--less)}.base{fill:var(--p0)}.rest{fill:var(--other)}
"""
_DRAWN += "".join(f".dot.c-{name}{{fill:var(--{name})}}" for name in _CLASSES)
_DRAWN += "".join(f".s{i}{{stroke:var(--{name})}}.dot.s{i}{{fill:var(--{name})}}" for i, name in enumerate(_TRENDS))
_DRAWN += "".join(f".p{i}{{fill:var(--p{i})}}" for i in range(6))

_PAGE = """
body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1000px;margin:0 auto;padding:24px}
h1{font-size:24px;margin:0 0 8px}h2{font-size:18px;margin:28px 0 6px}h3{font-size:14px;margin:0 0 4px;color:var(--soft)}
p{margin:6px 0}figure{margin:0}figcaption,.kind{color:var(--soft);font-size:13px}
.said{font-size:17px}.cards{display:flex;gap:12px;flex-wrap:wrap;margin:12px 0}
.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 16px}.card p{margin:0;font-size:13px}
.card .big{font-size:26px;font-weight:600}.alarm{border-left:4px solid var(--decode);padding:6px 12px;background:var(--card)}
.alarm{overflow-wrap:anywhere}
figure svg{width:100%;height:auto;display:block}.legend{display:flex;gap:6px;flex-wrap:wrap}.legend svg{width:14px}
button{font:inherit;color:inherit;background:none;border:0;cursor:pointer;padding:0}.pick{display:flex;align-items:center;gap:5px;
font-size:13px;border:1px solid var(--line);border-radius:12px;padding:1px 9px}
.pick[aria-pressed=false]{opacity:.45;text-decoration:line-through}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}
th,td{padding:3px 8px;border-bottom:1px solid var(--line);white-space:nowrap;text-align:left}td[data-v]{text-align:right}
td.long{max-width:190px;overflow:hidden;text-overflow:ellipsis}td.text{white-space:normal;min-width:220px}
th{position:sticky;top:0;background:var(--ground)}th[aria-sort=ascending] button::after{content:" \\2191"}
th[aria-sort=descending] button::after{content:" \\2193"}pre{overflow-x:auto;font-size:12px}ul{padding-left:20px}
summary{cursor:pointer;margin:10px 0}
@media(max-width:640px){main{padding:12px}figure{overflow-x:auto}figure svg{min-width:640px}.card{flex:1 1 120px}h1{font-size:20px}}
"""


def _variables(theme: dict[str, str]) -> str:
    return ":root{" + ";".join(f"--{name}:{colour}" for name, colour in theme.items()) + "}"


STYLE = f"{_variables(_LIGHT)}@media(prefers-color-scheme:dark){{{_variables(_DARK)}}}{_DRAWN}{_PAGE}"


def drawn_in(theme: str) -> str:
    """The rules of pictures in the colours of one theme, for files that know no variables."""
    return re.sub(r"var\(--(\w+)\)", lambda match: THEMES[theme][match[1]], _DRAWN)


SCRIPT = """
document.querySelectorAll('table').forEach(function(table){
 var heads=table.querySelectorAll('th');
 heads.forEach(function(th,i){th.querySelector('button').addEventListener('click',function(){
  var up=th.getAttribute('aria-sort')!=='ascending';
  heads.forEach(function(h){h.removeAttribute('aria-sort')});
  th.setAttribute('aria-sort',up?'ascending':'descending');
  var body=table.tBodies[0],rows=Array.from(body.rows);
  var key=function(r){var c=r.cells[i];return c.dataset.v!==undefined?Number(c.dataset.v):c.textContent};
  rows.sort(function(a,b){var x=key(a),y=key(b);
   var d=typeof x==='number'&&typeof y==='number'?x-y:(typeof x==='number'?-1:typeof y==='number'?1:x.localeCompare(y));
   return up?d:-d});
  rows.forEach(function(r){body.appendChild(r)})})})});
document.querySelectorAll('.pick').forEach(function(b){b.addEventListener('click',function(){
 var on=b.getAttribute('aria-pressed')!=='true';b.setAttribute('aria-pressed',on);
 document.querySelectorAll('figure>svg .'+b.dataset.class).forEach(function(m){m.style.display=on?'':'none'})})});
"""
