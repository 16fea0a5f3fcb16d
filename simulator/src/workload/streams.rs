//! Streams: create, delete, get.

use client::{Reply, RequestFrame};
use wire::{Name, Options, Request, reply, request};

use super::{Call, Sampler, Stream, Verdict, named, stream_name};

/// So many exist at a time.
const STREAMS_MAX: usize = 3;

impl Sampler<'_> {
    pub(super) fn sample_stream(&mut self) -> (Call, RequestFrame) {
        let live = self
            .workload
            .streams
            .values()
            .filter(|stream| stream.live)
            .count();
        let Some(stream) = self.some_stream() else {
            return self.create_stream();
        };
        match self.prng().below(10) {
            0..4 if live < STREAMS_MAX => self.create_stream(),
            4..5 if live > 1 => {
                let name = stream_name(stream);
                let frame = RequestFrame::new(&Request::DeleteStream(named(&name)));
                (Call::DeleteStream { stream }, frame)
            }
            5..8 => {
                let name = stream_name(stream);
                let frame = RequestFrame::new(&Request::GetStream(named(&name)));
                (Call::GetStream { stream }, frame)
            }
            _ => (Call::GetStreams, RequestFrame::new(&Request::GetStreams)),
        }
    }

    pub(super) fn create_stream(&mut self) -> (Call, RequestFrame) {
        let stream = self.new_name();
        self.workload.streams.insert(
            stream,
            Stream {
                live: false,
                id: 0,
                doubts: 0,
            },
        );
        let name = stream_name(stream);
        let name = Name::new(&name).expect("a short name");
        let request = request::CreateStream {
            name,
            options: Options::default(),
        };
        (
            Call::CreateStream { stream },
            RequestFrame::new(&Request::CreateStream(request)),
        )
    }

    pub(super) fn judge_stream(&mut self, call: &Call, reply: &Reply) -> Verdict {
        match call {
            Call::CreateStream { stream } => {
                let Ok(record) = reply.decode::<reply::StreamRecord<'_>>() else {
                    return self.fail("a created stream has no record".into());
                };
                let name = stream_name(*stream);
                if record.name.as_str() != name || record.topics_count != 0 {
                    return self.fail(format!("{name} was created as {record:?}"));
                }
                let known = self.workload.streams.get_mut(stream).expect("known");
                (known.live, known.id) = (true, record.id);
                Ok(())
            }
            Call::DeleteStream { stream } => {
                self.workload.streams.get_mut(stream).expect("known").live = false;
                Ok(())
            }
            Call::GetStream { stream } => {
                let name = stream_name(*stream);
                match reply.decode_optional::<reply::StreamDetails<'_>>() {
                    Ok(Some(details)) if details.stream.name.as_str() == name => Ok(()),
                    Ok(None) => Ok(()),
                    other => self.fail(format!("{name} was read as {other:?}")),
                }
            }
            _ => match reply.decode::<Vec<reply::StreamRecord<'_>>>() {
                Ok(_) => Ok(()),
                Err(error) => self.fail(format!("streams were read as {error:?}")),
            },
        }
    }
}
