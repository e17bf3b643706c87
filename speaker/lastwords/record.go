package lastwords

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Crash is how often something has ended the process, and when it last did.
type Crash struct {
	Times int       `json:"times"`
	Last  time.Time `json:"last"`
}

const (
	// firstPause is within the time for which routers keep the routes of a session that is
	// to come back.
	firstPause = time.Minute
	// nextPause is more than the ten minutes after which the kubelet forgets that a
	// container ended before, and restarts it at once: other sessions are not to suffer.
	nextPause = 11 * time.Minute
	lastPause = time.Hour
	// forgiven is after how long without a crash it counts anew.
	forgiven = 6 * time.Hour
)

// Pause is for how long after the last time it is to be left alone.
func (c Crash) Pause() time.Duration {
	if c.Times <= 1 {
		return firstPause
	}
	pause := nextPause
	for range min(c.Times-2, 10) {
		pause *= 2
	}
	return min(pause, lastPause)
}

// Until is when it may be tried again.
func (c Crash) Until() time.Time { return c.Last.Add(c.Pause()) }

// Record is what has ended processes, by the value of a label.
type Record map[string]Crash

// Note takes in one more crash, and forgets what was long ago.
func (r Record) Note(what string, now time.Time) {
	for other, c := range r {
		if now.Sub(c.Last) > forgiven {
			delete(r, other)
		}
	}
	r[what] = Crash{Times: r[what].Times + 1, Last: now}
}

// Recall takes in what ended the process before, of which a goroutine had a label of this
// key; what is "" if nothing did. The files in the directory are for one process at a time.
// The record is what is known also where there is an error.
func Recall(dir, key string, now time.Time) (r Record, what string, err error) {
	file := filepath.Join(dir, "crashes.json")
	r, unread := Load(file)
	words, unkept := Keep(filepath.Join(dir, "crash"))
	var unsaved error
	if value, ok := Labelled(words, key); ok {
		what = value
		r.Note(what, now)
		unsaved = r.Store(file)
	}
	return r, what, errors.Join(unread, unkept, unsaved)
}

// Load reads a record; an empty one if there is none.
func Load(file string) (Record, error) {
	text, err := os.ReadFile(filepath.Clean(file))
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, nil
	}
	if err != nil {
		return Record{}, err
	}
	r := Record{}
	if err := json.Unmarshal(text, &r); err != nil {
		return Record{}, err
	}
	return r, nil
}

// Store writes it.
func (r Record) Store(file string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	fresh := file + ".new"
	if err := os.WriteFile(filepath.Clean(fresh), text, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, file)
}
