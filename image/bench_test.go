package image

import (
	"fmt"
	"testing"
)

// BenchmarkPull pulls and converts an image of 200 MB from a registry on loopback. Half of it is text that compresses.
// It has four layers and 8,000 files.
func BenchmarkPull(b *testing.B) {
	noise := randomText(50 << 10)
	var layers [][]byte
	for l := range 4 {
		var entries []entry
		for i := range 2000 {
			body := noise[:25<<10]
			if i%2 == 0 {
				body = fmt.Sprintf("%025600d", l*2000+i)
			}
			entries = append(entries, file(fmt.Sprintf("layer%d/dir%d/file%d", l, i%50, i), fmt.Sprint(l, i)+body))
		}
		layers = append(layers, tarOf(b, entries...))
	}
	host := startRegistry(b, nil)
	push(b, host+"/bench:1", imageOf(b, layers...))
	b.SetBytes(int64(4 * len(layers[0])))
	for b.Loop() {
		s, _ := openStore(b, "run")
		if _, err := s.Pull(testContext(b), host+"/bench:1", PullOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
