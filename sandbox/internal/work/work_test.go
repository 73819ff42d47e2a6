package work

import "testing"

func TestGroup(t *testing.T) {
	g := New()
	ended := false
	g.Go(func() {
		<-g.Context().Done()
		ended = true
	})
	g.Cancel()
	g.Go(func() { t.Error("a goroutine began after Cancel") })
	g.Wait()
	if !ended {
		t.Error("Wait did not wait")
	}
}
