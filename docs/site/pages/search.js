// The search: the index is loaded when the field is first used, and all of it is done in the browser.
const input = document.querySelector('#search')
const results = document.querySelector('#results')
const root = document.body.dataset.root
let index

function load() {
  if (index) return
  index = []
  const script = document.createElement('script')
  script.src = root + 'search-index.js'
  script.onload = () => {
    index = window.searchIndex.map(e => ({ ...e, in: [e.heading, e.page, e.text].map(t => t.toLowerCase()) }))
    search()
  }
  document.head.append(script)
}

// score is 0 if a word is missing. Headings count most; decisions and changes come after guides.
function score(entry, words) {
  let sum = /\/adr\/|CHANGELOG/.test(entry.url) ? -6 : 0
  for (const word of words) {
    const of = (entry.in[0].includes(word) ? 8 : 0) + (entry.in[1].includes(word) ? 4 : 0) + (entry.in[2].includes(word) ? 1 : 0)
    if (!of) return 0
    sum += of
  }
  return Math.max(sum, 0.5)
}

// around is the text of an entry from some words before the first hit on.
function around(entry, words) {
  const at = Math.max(entry.in[2].indexOf(words[0]), 0)
  const from = at < 60 ? 0 : entry.text.indexOf(' ', at - 60) + 1
  return (from ? '… ' : '') + entry.text.slice(from, from + 150)
}

function search() {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean)
  results.hidden = !words.length
  results.replaceChildren()
  if (!words.length) return
  const hits = index.map(entry => ({ entry, score: score(entry, words) })).filter(h => h.score)
  hits.sort((a, b) => b.score - a.score)
  for (const { entry } of hits.slice(0, 20)) {
    const link = document.createElement('a')
    link.href = root + entry.url
    const heading = document.createElement('b')
    heading.textContent = entry.heading === entry.page ? entry.page : entry.page + ' › ' + entry.heading
    const text = document.createElement('small')
    text.textContent = around(entry, words)
    link.append(heading, text)
    results.append(link)
  }
  if (!hits.length) {
    const none = document.createElement('p')
    none.textContent = 'Nothing found.'
    results.append(none)
  }
}

input.addEventListener('focus', load)
input.addEventListener('input', () => { load(); search() })
document.addEventListener('keydown', event => {
  if (event.key === '/' && document.activeElement !== input) {
    event.preventDefault()
    input.focus()
  }
  if (event.key === 'Escape') results.hidden = true
})
document.addEventListener('click', event => {
  if (!results.contains(event.target) && event.target !== input) results.hidden = true
})
