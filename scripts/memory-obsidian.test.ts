// Runs the rules of Obsidian Linter (github.com/platers/obsidian-linter) on MATRIX/NN/original.md: copy this file into its
// __tests__ and start `MATRIX=tests/data/memory/formatters npx jest memory-obsidian`.
import {readFileSync, writeFileSync, readdirSync} from 'fs';
const names = ['paragraph-blank-lines','heading-blank-lines','empty-line-around-horizontal-rules','trailing-spaces','unordered-list-style','space-after-list-markers','remove-empty-lines-between-list-markers-and-checklists','emphasis-style','strong-style','convert-spaces-to-tabs','two-spaces-between-lines-with-content','consecutive-blank-lines','line-break-at-document-end'];
it('formats', () => {
  const dir = process.env.MATRIX as string;
  for (const f of readdirSync(dir)) {
    let text = readFileSync(`${dir}/${f}/original.md`, 'utf8');
    for (const n of names) {
      if (n === 'two-spaces-between-lines-with-content' && parseInt(f) % 2 === 0) continue;
      const cls = require(`../src/rules/${n}`).default;
      const rule = cls.getRule();
      text = rule.apply(text, rule.getDefaultOptions ? rule.getDefaultOptions() : {});
    }
    writeFileSync(`${dir}/${f}/obsidian.md`, text);
  }
});
