package hygiene

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
)

const module = "github.com/bulkhead-project/bulkhead/"

// wall limits the imports of packages. A package is named by its import path, without the path of our module. A name with
// /... includes the packages below it. A name that ends with a slash is a prefix. "ours" means every package of our module,
// and "others" every package of other modules.
type wall struct {
	of     string // the packages
	except string // packages that the wall leaves out
	direct bool   // only the packages' own imports count, not their imports'
	reason string
	banned string // packages that they must not import
	but    string // packages that they may import anyway
}

// packages are all of the module, by name.
type packages map[string]struct {
	ImportPath    string
	Imports, Deps []string
}

func load(t *testing.T) packages {
	t.Helper()
	cmd := testgo.Command(t.Context(), "list", "-deps", "-json=ImportPath,Imports,Deps", "-tags", tags, "./...")
	top, err := testgo.Root()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Dir = top
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	all := packages{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var one struct {
			ImportPath    string
			Imports, Deps []string
		}
		if err := d.Decode(&one); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[shorten(one.ImportPath)] = one
	}
}

// shorten removes our module from a path.
func shorten(path string) string { return strings.TrimPrefix(path, module) }

// ours reports whether a package is of our module.
func (p packages) ours(name string) bool { return strings.HasPrefix(p[name].ImportPath, module) }

// others reports whether a package is neither of our module nor of Go's library.
func (p packages) others(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return !p.ours(name) && strings.Contains(first, ".")
}

// matches reports whether name is one of the packages that are described.
func (p packages) matches(name, patterns string) bool {
	return slices.ContainsFunc(strings.Fields(patterns), func(one string) bool {
		switch dir, below := strings.CutSuffix(one, "/..."); {
		case one == "ours":
			return p.ours(name)
		case one == "others":
			return p.others(name)
		case below:
			return name == dir || strings.HasPrefix(name, dir+"/")
		default:
			return name == one || strings.HasSuffix(one, "/") && strings.HasPrefix(name, one)
		}
	})
}

// TestWalls checks what the packages import.
func TestWalls(t *testing.T) {
	t.Parallel()
	all := load(t)
	for _, w := range walls {
		found := false
		for name := range all {
			if !all.ours(name) || !all.matches(name, w.of) || all.matches(name, w.except) {
				continue
			}
			found = true
			imports := all[name].Deps
			if w.direct {
				imports = all[name].Imports
			}
			for _, path := range imports {
				other := shorten(path)
				if all.matches(other, w.banned) && !all.matches(other, w.but) {
					t.Errorf("%s must not import %s: %s", name, other, w.reason)
				}
			}
		}
		if !found {
			t.Errorf("no package matches %s", w.of)
		}
	}
}

// TestRooms checks that a package of a layer imports only the packages of the layer that are listed for it.
func TestRooms(t *testing.T) {
	t.Parallel()
	all := load(t)
	for layer, rooms := range layers {
		for name := range all {
			room, inside := strings.CutPrefix("/"+name+"/", "/"+layer+"/")
			if !inside || !all.ours(name) {
				continue
			}
			room, _, _ = strings.Cut(strings.TrimSuffix(room, "/"), "/internal/")
			may, known := rooms[room]
			if !known {
				t.Errorf("%s is missing from the layer %s in this test", name, layer)
			}
			for _, path := range all[name].Imports {
				other, is := strings.CutPrefix(shorten(path), layer+"/")
				if is && !strings.Contains(other, "/internal/") && !slices.Contains(strings.Fields(may), other) {
					t.Errorf("%s must not import %s/%s", name, layer, other)
				}
			}
		}
	}
}
