// Package relist has watches begin anew where what the API server stores went back. After etcd was restored to an older
// state a watch that goes on from a later revision is told of nothing, and what it knew from then stays: objects that
// there are no longer, and none of those that came back.
package relist

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// AfterRestore returns a copy of the config for clients that notice when the store went back. At rest that costs nothing: a
// store goes back only while no API server runs, which cuts watches, and once for each after that the store is asked for
// its revision.
func AfterRestore(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &transport{next: next, asked: map[string]uint64{}}
	})
	return config
}

// transport answers a watch from a revision that the store does not have yet with Expired.
type transport struct {
	next http.RoundTripper

	mu    sync.Mutex
	cuts  uint64            // how often the API server was away
	asked map[string]uint64 // what cuts was when the store was asked, by what is watched
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	if query.Get("watch") == "" {
		return t.next.RoundTrip(r)
	}
	if from, err := strconv.ParseUint(query.Get("resourceVersion"), 10, 64); err == nil && from > 0 && query.Get("sendInitialEvents") == "" {
		switch back, err := t.wentBack(r, from); {
		case err != nil:
			return nil, err
		case back:
			return expired(r), nil
		}
	}
	began := time.Now()
	response, err := t.next.RoundTrip(r)
	if err != nil || response.StatusCode >= http.StatusInternalServerError {
		t.cut()
		return response, err
	}
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil {
		response.Body = &body{ReadCloser: response.Body, end: began.Add(time.Duration(seconds) * time.Second), early: t.cut}
	}
	return response, nil
}

func (t *transport) cut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cuts++
}

// wentBack reports whether the store is at an earlier revision. It returns an error if the store was to be asked for
// that and did not answer.
func (t *transport) wentBack(r *http.Request, from uint64) (bool, error) {
	query := r.URL.Query()
	for _, of := range []string{"watch", "resourceVersion", "resourceVersionMatch", "allowWatchBookmarks", "timeoutSeconds"} {
		query.Del(of)
	}
	what := r.URL.Path + "?" + query.Encode()
	t.mu.Lock()
	cuts, asked := t.cuts, t.asked[what]
	t.mu.Unlock()
	if cuts == asked {
		return false, nil
	}
	query.Set("limit", "1")
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	list := r.Clone(ctx)
	list.URL.RawQuery = query.Encode()
	list.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json")
	list.Header.Del("Accept-Encoding")
	revision, err := t.revision(list)
	if err != nil {
		return false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked[what] = cuts
	return revision < from, nil
}

// patience is how long the store may take for one object.
const patience = 10 * time.Second

// revision returns that of a list, or why there is none.
func (t *transport) revision(list *http.Request) (uint64, error) {
	response, err := t.next.RoundTrip(list)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }() // it is read
	const most = 4 << 20                         // an object has 1.5 MiB at most
	text, err := io.ReadAll(io.LimitReader(response.Body, most))
	if err != nil {
		return 0, err
	}
	var head metav1.PartialObjectMetadataList
	if err := json.Unmarshal(text, &head); err != nil || response.StatusCode != http.StatusOK {
		return 0, errors.Join(fmt.Errorf("GET %s: %s", list.URL.Path, response.Status), err)
	}
	return strconv.ParseUint(head.ResourceVersion, 10, 64)
}

// expired is what the API server says of a revision that it has no longer, after which clients list again.
func expired(r *http.Request) *http.Response {
	text, _ := json.Marshal(metav1.Status{ // of plain values
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusGone,
		Reason: metav1.StatusReasonExpired, Message: "what the API server stores was restored to an earlier revision",
	})
	return &http.Response{
		StatusCode: http.StatusGone, Status: "410 Gone", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(text)), Body: io.NopCloser(bytes.NewReader(text)),
	}
}

// body is what a watch tells.
type body struct {
	io.ReadCloser
	end   time.Time // when the API server ends it
	early func()    // is called if it ends before
	once  sync.Once
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && time.Until(b.end) > time.Second {
		b.once.Do(b.early)
	}
	return n, err
}
