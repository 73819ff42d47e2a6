package hygiene

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
)

var (
	list   = flag.String("prose", "", "list what TestProse counts below this directory, for example engine/store")
	update = flag.Bool("update", false, "write the counts of TestProse")
)

// pattern finds a phrase that is hard to read.
type pattern struct {
	name string
	find *regexp.Regexp
	not  *regexp.Regexp // a match that also matches this does not count
	hint string         // each match contains it; looking for it first is cheap
	long int            // without find: the number of words that is too many
}

// matches returns the places in a sentence that count.
func (p pattern) matches(sentence string) (found []string) {
	if p.find == nil {
		if len(strings.Fields(sentence)) > p.long {
			return []string{sentence}
		}
		return nil
	}
	if !strings.Contains(sentence, p.hint) {
		return nil
	}
	for _, m := range p.find.FindAllString(sentence, -1) {
		if p.not == nil || !p.not.MatchString(m) {
			found = append(found, m)
		}
	}
	return found
}

// patterns are the phrases that TestProse counts. CONTRIBUTING.md says what to write instead.
var patterns = []pattern{
	{name: "X has Y be Z", hint: "be", find: regexp.MustCompile(`\b(?:has|have|had) (?:[\w'*./-]+ ){1,12}be\b`),
		not: regexp.MustCompile(`\b(?:to|can|could|may|must|will|would|should|not) be$`)},
	{name: "whose", hint: "whose", find: regexp.MustCompile(`\bwhose\b`)},
	{name: "that of, those of", hint: " of", find: regexp.MustCompile(`\b(?:that|those) of\b`)},
	{name: "anew", hint: "anew", find: regexp.MustCompile(`\banew\b`)},
	{name: "is no", hint: " no", find: regexp.MustCompile(`(?:\w+ )?\b(?:is|are|was|were) no\b`), not: regexp.MustCompile(`^[Tt]here `)},
	{name: "of which", hint: " wh", find: regexp.MustCompile(`\b(?:of|by|in|with|from|to) (?:which|whom)\b`)},
	{name: "What, Who at a head", find: regexp.MustCompile(`(?:^|[.:;] )(?:[Ww]hat|[Ww]ho|[Ww]hoever|[Ww]hatever|[Ww]hom) [^?]*?(?:[.:;]|$)`)},
	{name: "what", hint: "hat", find: regexp.MustCompile(`\b[Ww]hat\b`)},
	{name: "nobody", find: regexp.MustCompile(`\b(?:[Nn]obody|[Ss]omebody|[Ww]hoever)\b`)},
	{name: "Nothing at a head",
		find: regexp.MustCompile(`(?:^|[.:;] )(?:Nothing|None|No one|nothing|none) (?:of|is|are|was|else|that|can|may)\b`)},
	{name: "machine", hint: "achine", find: regexp.MustCompile(`\b[Mm]achines?\b`)},
	{name: "tell, told", find: regexp.MustCompile(`\b(?:[Tt]ells?|told|[Tt]elling)\b`)},
	{name: "it is X that", hint: "t is ", find: regexp.MustCompile(`\b[Ii]t is (?:[\w'-]+ ){1,4}(?:that|who|which)\b`)},
	{name: "over 30 words", long: 30},
}

// uncounted are the directories without prose of ours.
var uncounted = []string{"bin", "build", "internal/hygiene"}

// machineOther are the other meanings of "machine".
var machineOther = regexp.MustCompile(`(?i)virtual machines?|machine types?|state machines?|machine[-_ ]?id|-machine|` +
	`machines?\.slice|systemd-machined|real machines?`)

// TestProse counts turns of phrase that are hard to read, in comments, strings and documents. A count may only fall.
func TestProse(t *testing.T) {
	root, err := testgo.Root()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "internal", "hygiene", "testdata", "prose.txt")
	want := counts(t, file)
	got := map[string]int{}
	err = filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case e.IsDir() && (strings.HasPrefix(e.Name(), ".") && path != root || slices.Contains(uncounted, name)):
			return filepath.SkipDir
		case e.IsDir():
			return nil
		}
		for _, s := range sentences(t, path) {
			for _, p := range patterns {
				for range p.matches(s.text) {
					got[p.name]++
					if *list != "" && strings.HasPrefix(name, *list) {
						fmt.Printf("%s:%d: %s: %s\n", name, s.line, p.name, s.text)
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, p := range patterns {
		if most, found := want[p.name]; !*update && (!found || got[p.name] > most) {
			t.Errorf("%q: %d, at most %d are allowed; go test ./internal/hygiene -v -run TestProse -prose DIR lists them", p.name, got[p.name], most)
		}
		fmt.Fprintf(&out, "%d %s\n", got[p.name], p.name)
	}
	t.Logf("\n%s", &out)
	if *update {
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// counts reads the file of counts.
func counts(t *testing.T, file string) map[string]int {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(string(data)) {
		number, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if counts[name], err = strconv.Atoi(number); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	return counts
}

// sentence is one that a file has, without the code in it.
type sentence struct {
	line int
	text string
}

// sentences returns the sentences of a document, or of the comments and strings of a Go file.
func sentences(t *testing.T, path string) []sentence {
	t.Helper()
	switch {
	case strings.HasSuffix(path, ".md"):
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return document(string(data))
	case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".pb.go") && !strings.HasSuffix(path, "_ttrpc.go"):
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		return goFile(files, f)
	}
	return nil
}

// document returns the sentences of Markdown. A block of code is left out. An item of a list, a cell and a heading are
// paragraphs.
func document(data string) (found []sentence) {
	var paragraph strings.Builder
	began, fenced := 0, false
	end := func() {
		found = append(found, split(began, paragraph.String())...)
		paragraph.Reset()
	}
	n := 0
	for line := range strings.Lines(data) {
		n++
		text := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(text, "```"):
			fenced = !fenced
			end()
		case fenced, text == "", strings.HasPrefix(line, "    ") && paragraph.Len() == 0:
			end()
		case strings.HasPrefix(text, "|"):
			end()
			for cell := range strings.SplitSeq(text, "|") {
				found = append(found, split(n, strings.TrimSpace(cell))...)
			}
		default:
			item := strings.TrimLeft(text, "-*#> ")
			if item != text {
				end()
			}
			if paragraph.Len() == 0 {
				began = n
			}
			paragraph.WriteString(item + " ")
		}
	}
	end()
	return found
}

// goFile returns the sentences of a Go file's comments and strings.
func goFile(files *token.FileSet, f *ast.File) (found []sentence) {
	for _, group := range f.Comments {
		line := files.Position(group.Pos()).Line
		for paragraph := range strings.SplitSeq(indented.ReplaceAllString(group.Text(), "\n"), "\n\n") {
			found = append(found, split(line, paragraph)...)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			return n.Tag == nil
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && strings.Contains(text, " ") {
				for line := range strings.Lines(text) { // a text of several lines is often a script
					found = append(found, split(files.Position(n.Pos()).Line, line)...)
				}
			}
		}
		return true
	})
	return found
}

var (
	code     = regexp.MustCompile("`[^`]*`")
	indented = regexp.MustCompile(`(?m)^(?:\t|    ).*\n`)
	ends     = regexp.MustCompile(`[.!?](?:\s+|$)|\n\s*\n|\n\s*- `)
)

// split splits a paragraph into sentences. Code in it becomes one word.
func split(line int, text string) (found []sentence) {
	text = code.ReplaceAllString(text, "X")
	if strings.Contains(strings.ToLower(text), "machine") {
		text = machineOther.ReplaceAllString(text, "X")
	}
	for _, one := range ends.Split(text, -1) {
		one = strings.Join(strings.Fields(one), " ")
		if one != "" {
			found = append(found, sentence{line, one})
		}
	}
	return found
}

// TestProsePatterns: each pattern finds its phrase, and leaves plain sentences alone.
func TestProsePatterns(t *testing.T) {
	for sentence, want := range map[string]string{
		"Guard has each request be looked at":                 "X has Y be Z",
		"Removes pods whose VM is gone":                       "whose",
		"the record of a pod, and that of its VM":             "that of, those of",
		"the log is begun anew":                               "anew",
		"the value is no number":                              "is no",
		"a list of which the first counts":                    "of which",
		"Reads the file: what it has counts":                  "What, Who at a head",
		"it prints what it found":                             "what",
		"the pod that nobody wants":                           "nobody",
		"Nothing is left":                                     "Nothing at a head",
		"the machine ends":                                    "machine",
		"the door is told of it":                              "tell, told",
		"it is the engine that does it":                       "it is X that",
		strings.Repeat("many words ", 16):                     "over 30 words",
		"There is no network":                                 "",
		"The virtual machine has a machine-id":                "",
		"The file has to be there, and the pod has been seen": "",
		"The engine deletes the record of a replaced VM":      "",
	} {
		var got []string
		for _, s := range split(1, sentence) {
			for _, p := range patterns {
				if len(p.matches(s.text)) > 0 {
					got = append(got, p.name)
				}
			}
		}
		// A "What" at a head is also counted as a "what".
		if want == "" && len(got) > 0 || want != "" && !slices.Contains(got, want) {
			t.Errorf("%q: %q, want %q", sentence, got, want)
		}
	}
}
